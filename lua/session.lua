-- session.lua: what the steps share; the loader puts it in front of each.
--
-- KEYS[1] calls   sorted set  "<signature> <call id>" -> server time in µs, strictly increasing
-- KEYS[2] counts  hash        signature -> equal calls in the window
-- KEYS[3] state   hash        made only when needed:
--   version       1: the layout on this page
--   halted        why the session is halted
--   epoch         number of the latest progress; epoch_by: the signature that made it ("" = the caller said so);
--                 epoch_before: the latest progress that another than epoch_by made; epoch_token: the id of the
--                 latest note of progress
--   sig:<signature>              "<epoch> <discounted> <result> <last>": the oldest <discounted> occurrences no longer
--                                count, if <epoch> is still the signature's; <result> digest or -; <last> score or 0
--   call:<signature> <call id>   "<ok> <tool>": the occurrence was reported (ok 1 or 0)
--   tool:<tool>                  "<epoch> <failed> <stagnant> <result> <latest>": the tool's streaks, until <latest>,
--                                the newest reported occurrence, leaves the window
-- KEYS[4] args    hash        signature -> canonical JSON, only where arguments are kept
--
-- A server makes every function anew at every call, and what functions share costs as much again. So what every record
-- makes shares no locals, and what a plain one does without is only made when it is needed.

-- Server time in µs, later than every score of the session.
local function next_score()
  local calls, call = KEYS[1], redis.call
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  if call('ZCOUNT', calls, now, '+inf') > 0 then now = call('ZRANGE', calls, -1, -1, 'WITHSCORES')[2] + 1 end
  return now
end

-- What is done with a state, and with a failure.
local function state_rules()
  local state, call = KEYS[3], redis.call
  local rules = {}

  function rules.corrupt(key, field)
    error('LOOPFENCE corrupt field ' .. field .. ' in ' .. key)
  end

  -- The error that a failed step answers with: its own text, without the place in the script.
  function rules.refusal(failure)
    local text = type(failure) == 'table' and failure.err or tostring(failure)
    return redis.error_reply((text:gsub('^@?user_script:%s?%d+: ?', ''):gsub('^%-', '')))
  end

  -- The session's fields, or nil where nothing but plain calls was ever seen.
  function rules.read_state()
    local raw = call('HMGET', state, 'version', 'halted', 'epoch', 'epoch_by', 'epoch_before')
    if not (raw[1] or raw[2]) then return nil end
    if raw[1] and raw[1] ~= '1' then error('LOOPFENCE version ' .. raw[1] .. ' of ' .. state .. ' is not 1') end
    local epoch, before = tonumber(raw[3] or 0), tonumber(raw[5] or 0)
    if not (epoch and before) then rules.corrupt(state, 'epoch') end
    return { halted = raw[2] or '', epoch = epoch, by = raw[4] or '', before = before }
  end

  -- A halted session is kept for 24 hours at least, and what led to it as well.
  function rules.halt_ttl(ttl)
    return math.max(tonumber(ttl), 86400000)
  end

  -- The latest epoch that discounts a signature: its own progress does not.
  function rules.epoch_for(session, signature)
    if session.by == signature then return session.before end
    return session.epoch
  end

  -- One progress more, made by the signature `owner` ("" = the caller said so).
  function rules.advance(session, owner)
    if owner == session.by then
      call('HSET', state, 'epoch', session.epoch + 1)
    else
      call('HSET', state, 'epoch', session.epoch + 1, 'epoch_by', owner, 'epoch_before', session.epoch)
    end
  end

  function rules.read_seen(raw, signature)
    if not raw then return nil end
    local epoch, discounted, result, last = raw:match('^(%d+) (%d+) (%S+) (%d+)$')
    if not epoch then rules.corrupt(state, 'sig:' .. signature) end
    return { epoch = tonumber(epoch), discounted = tonumber(discounted), result = result, last = tonumber(last) }
  end

  function rules.write_seen(signature, seen)
    call('HSET', state, 'version', '1', 'sig:' .. signature,
      string.format('%.0f %.0f %s %.0f', seen.epoch, seen.discounted, seen.result, seen.last))
  end

  -- How many of the signature's `total` occurrences no longer count.
  function rules.discounted_of(session, signature, seen, total)
    local epoch = rules.epoch_for(session, signature)
    if seen and seen.epoch == epoch then return seen.discounted end
    return epoch > 0 and total or 0
  end

  -- The tool's streaks, or nil where progress or the window's end (`cutoff`) has ended them.
  function rules.read_streak(session, raw, tool, cutoff)
    if not raw then return nil end
    local epoch, failed, stagnant, result, latest = raw:match('^(%d+) (%d+) (%d+) (%S+) (%d+)$')
    if not epoch then rules.corrupt(state, 'tool:' .. tool) end
    if tonumber(epoch) ~= session.epoch or tonumber(latest) <= cutoff then return nil end
    return { failed = tonumber(failed), stagnant = tonumber(stagnant), result = result, latest = tonumber(latest) }
  end

  return rules
end
