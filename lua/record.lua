-- record.lua: one call enters its session's window, in one atomic step.
--
-- KEYS  1 calls  2 counts  3 state  4 args                      (see session.lua)
-- ARGV  1 signature  2 call id  3 tool  4 window  5 TTL in ms; then, as far as any is needed:
--       6 max age in µs (0 = none)  7 pace in µs (0 = none)  8 repeats at which the session is halted (0 = never)
--       9 the reason to store then  10 canonical arguments to keep
-- Reply "<repeats> <total> <size> <failed> <stagnant> <duplicate 0/1> <why it was halted before this call>"
-- Cost  O(log window) and, for each occurrence that leaves, O(log window); at most one leaves where all workers use
--       one window and no max age. Plain path, in µs by INFO commandstats on Redis 8.2, window 20, 20 signatures:
--       EXISTS 0.9, TIME 0.5, ZCOUNT 1.3, ZADD 3.3, PEXPIRE 0.8, HINCRBY 1.4, ZCARD 0.3, PEXPIRE 0.8; where the window
--       is full also ZPOPMIN 1.7, HINCRBY 1.4, and HDEL 0.7 for the last of its kind. A call of any command from Lua
--       adds 2 to 3, the script itself 8.
-- The first write is the ZADD: a server that is out of memory, read-only or without the permission refuses the
-- step there, with nothing written. What fails later is taken back.

-- What a plain call does without.
local function record_rules()
  local counts, state, args, call = KEYS[2], KEYS[3], KEYS[4], redis.call
  local signature, tool, pace = ARGV[1], ARGV[3], tonumber(ARGV[7] or 0)
  local rules = state_rules()

  -- Forget what the state holds for an occurrence of `owner` that has left the window. It reads before it writes: a
  -- corrupt field raises while nothing is forgotten.
  function rules.forget(owner, gone, score)
    local raw = call('HMGET', state, 'sig:' .. owner, 'call:' .. gone)
    local seen = rules.read_seen(raw[1], owner)
    local user = raw[2] and (raw[2]:match('^[01] (%S+)$') or rules.corrupt(state, 'call:' .. gone))
    local left = call('HINCRBY', counts, owner, -1)
    if left < 1 then
      if seen then call('HDEL', state, 'sig:' .. owner) end
    elseif seen and seen.discounted > 0 then
      seen.discounted = seen.discounted - 1
      rules.write_seen(owner, seen)
    end
    if not user then return left end
    local streak = call('HGET', state, 'tool:' .. user)
    if streak and streak:match(' (%d+)$') == score then
      call('HDEL', state, 'call:' .. gone, 'tool:' .. user)
    else
      call('HDEL', state, 'call:' .. gone)
    end
    return left
  end

  -- Keep the arguments; where a worker that keeps none let signatures go, theirs go now.
  function rules.keep_args(ttl)
    call('HSET', args, signature, ARGV[10])
    call('PEXPIRE', args, ttl)
    if call('HLEN', args) <= call('HLEN', counts) then return end
    for _, other in ipairs(call('HKEYS', args)) do
      if call('HEXISTS', counts, other) == 0 then call('HDEL', args, other) end
    end
  end

  -- Settle how many earlier occurrences no longer count; the second value says that a poll came at its pace.
  function rules.discount(session, now, seen, total)
    local epoch = rules.epoch_for(session, signature)
    local news, polled = false, false
    if not seen then
      if epoch == 0 and pace == 0 then return 0, false end
      seen = { epoch = epoch, discounted = epoch > 0 and total - 1 or 0, result = '-', last = 0 }
      news = true
    elseif seen.epoch ~= epoch then
      seen.epoch, seen.discounted = epoch, total - 1
      news = true
    end
    if pace > 0 then
      if total > 1 and seen.last > 0 and now - seen.last >= pace then
        seen.discounted = total - 1
        call('HDEL', state, 'tool:' .. tool)
        polled = true
      end
      seen.last = now
      news = true
    end
    if news then rules.write_seen(signature, seen) end
    return seen.discounted, polled
  end

  -- What is known of this call's signature, and its tool's streaks.
  function rules.read_own(session)
    local raw = call('HMGET', state, 'sig:' .. signature, 'tool:' .. tool)
    return rules.read_seen(raw[1], signature), rules.read_streak(session, raw[2], tool, 0)
  end

  return rules
end

-- Forget `members`, which have just been removed; returns how many of them equal this call.
-- rules: for a session that has a state.
local function let_go(members, rules, undo)
  local counts, call = KEYS[2], redis.call
  local signature, kept, equal = ARGV[1], ARGV[10], 0
  undo.leaving, undo.forgotten = members, 0
  for i = 1, #members, 2 do
    local owner = members[i]:match('^(%S+) ') or state_rules().corrupt(KEYS[1], members[i])
    local left = rules and rules.forget(owner, members[i], members[i + 1]) or call('HINCRBY', counts, owner, -1)
    if left < 1 then
      call('HDEL', counts, owner)
      if kept then call('HDEL', KEYS[4], owner) end
    end
    if owner == signature then equal = equal + 1 end
    undo.forgotten = i + 1
  end
  return equal
end

-- The step; `undo` is told what has to be taken back should it fail.
local function record(member, undo)
  local calls, counts, state, call = KEYS[1], KEYS[2], KEYS[3], redis.call
  local signature, window, ttl, kept = ARGV[1], tonumber(ARGV[4]), ARGV[5], ARGV[10]
  local max_age, pace, stop = tonumber(ARGV[6] or 0), tonumber(ARGV[7] or 0), tonumber(ARGV[8] or 0)
  local known = call('EXISTS', state) == 1
  local rules = (known or kept or pace > 0) and record_rules()
  local session = known and rules.read_state()
  local halted = session and session.halted or ''
  if halted ~= '' then ttl = rules.halt_ttl(ttl) end
  local now = next_score()
  local aged, reborn, added
  if max_age > 0 then
    aged = call('ZRANGEBYSCORE', calls, '-inf', now - max_age, 'WITHSCORES')
    for i = 1, #aged, 2 do
      if aged[i] == member then reborn = true end
    end
  end
  if reborn then
    call('ZADD', calls, now, member)
    added = true
  else
    added = call('ZADD', calls, 'NX', now, member) == 1
  end
  undo.added = added
  call('PEXPIRE', calls, ttl)
  if aged and #aged > 0 then
    call('ZREMRANGEBYSCORE', calls, '-inf', now - max_age)
    let_go(aged, session and rules, undo)
  end
  local total
  if added then
    total = call('HINCRBY', counts, signature, 1)
    undo.counted = true
    if kept then rules.keep_args(ttl) end
  else
    total = tonumber(call('HGET', counts, signature) or 1) or state_rules().corrupt(counts, signature)
  end
  local size = call('ZCARD', calls)
  if added and size > window then
    -- Once anything is forgotten there is no way back: what is read below must be readable.
    if session then rules.read_own(session) end
    total = total - let_go(call('ZPOPMIN', calls, size - window), session and rules, undo)
    size = window
  end
  call('PEXPIRE', counts, ttl)

  local repeats, failed, stagnant = total, 0, 0
  if not session and pace > 0 then
    call('HSET', state, 'version', '1')
    session = { halted = '', epoch = 0, by = '', before = 0 }
  end
  if session then
    local seen, streak = rules.read_own(session)
    local discounted, polled
    if added then
      discounted, polled = rules.discount(session, now, seen, total)
    else
      discounted = rules.discounted_of(session, signature, seen, total)
    end
    repeats = math.max(1, total - discounted)
    if streak and not polled then failed, stagnant = streak.failed, streak.stagnant end
  end
  if stop > 0 and repeats >= stop and halted == '' then
    call('HSET', state, 'version', '1', 'halted', ARGV[9])
    ttl = state_rules().halt_ttl(ttl)
    call('PEXPIRE', calls, ttl)
    call('PEXPIRE', counts, ttl)
    call('PEXPIRE', KEYS[4], ttl)
    session = true
  end
  if session then call('PEXPIRE', state, ttl) end
  -- One text and not a list: it is read several times faster.
  return repeats .. ' ' .. total .. ' ' .. size .. ' ' .. failed .. ' ' .. stagnant .. (added and ' 0 ' or ' 1 ') .. halted
end

local member = ARGV[1] .. ' ' .. ARGV[2]
local undo = { added = false, counted = false, leaving = false, forgotten = 0 }
local ok, reply = pcall(record, member, undo)
if ok then return reply end
local pcall = redis.pcall
if undo.added then pcall('ZREM', KEYS[1], member) end
if undo.counted and pcall('HINCRBY', KEYS[2], ARGV[1], -1) == 0 then
  pcall('HDEL', KEYS[2], ARGV[1])
  pcall('HDEL', KEYS[4], ARGV[1])
end
local leaving = undo.leaving or {}
for i = undo.forgotten + 1, #leaving, 2 do pcall('ZADD', KEYS[1], leaving[i + 1], leaving[i]) end
return state_rules().refusal(reply)
