-- report.lua: what came of a recorded call: did it fail, did its result change, was it progress?
--
-- KEYS  1 calls  2 counts  3 state  4 args                      (see session.lua)
-- ARGV  1 signature  2 call id  3 digest of the result ("" = unknown)  4 tool  5 max age in µs (0 = none)  6 ok 0/1
--       7 a success of this tool is progress 0/1  8 the result takes part in the stagnation streak 0/1  9 TTL in ms
-- Reply 1 = noted, 0 = nothing to note: the occurrence is not in the window, or was reported before (only a success
--       after a failure, a retried job, is news)
-- Cost  O(log window)

local calls, counts, state, args, call = KEYS[1], KEYS[2], KEYS[3], KEYS[4], redis.call
local signature, result, tool = ARGV[1], ARGV[3], ARGV[4]
local max_age, ttl = tonumber(ARGV[5]), ARGV[9]
local ok = ARGV[6] == '1'
local member = signature .. ' ' .. ARGV[2]
local rules = state_rules()
local session, known

-- Take note of the result; true where it differs from the one before: then only the latest occurrence still counts.
local function compare(seen, total)
  local discounted = rules.discounted_of(session, signature, seen, total)
  seen = seen or { result = '-', last = 0 }
  local changed = seen.result ~= '-' and seen.result ~= result
  if changed then discounted = math.max(discounted, total - 1) end
  seen.epoch, seen.discounted, seen.result = rules.epoch_for(session, signature), discounted, result
  rules.write_seen(signature, seen)
  return changed
end

local function extend_streak(streak, score, changed)
  if not streak or changed then streak = { failed = 0, stagnant = 0, result = '-', latest = 0 } end
  streak.latest = math.max(streak.latest, score)
  streak.failed = ok and 0 or streak.failed + 1
  if ARGV[8] == '1' then
    streak.stagnant = streak.result == result and streak.stagnant + 1 or 1
    streak.result = result
  end
  call('HSET', state, 'tool:' .. tool, string.format('%.0f %.0f %.0f %s %.0f',
    session.epoch, streak.failed, streak.stagnant, streak.result, streak.latest))
end

local function report()
  local score = tonumber(call('ZSCORE', calls, member) or nil)
  if not score then return 0 end
  local cutoff = max_age > 0 and next_score() - max_age or 0
  if score <= cutoff then return 0 end
  known = rules.read_state()
  session = known or { halted = '', epoch = 0, by = '', before = 0 }
  local raw = call('HMGET', state, 'call:' .. member, 'sig:' .. signature, 'tool:' .. tool)
  if raw[1] and (raw[1]:sub(1, 1) == '1' or not ok) then return 0 end
  -- All is read before anything is written: a corrupt field must not leave half a report.
  local seen, streak = rules.read_seen(raw[2], signature), rules.read_streak(session, raw[3], tool, cutoff)
  local total = tonumber(call('HGET', counts, signature) or 0) or rules.corrupt(counts, signature)

  if session.halted ~= '' then ttl = rules.halt_ttl(ttl) end
  call('HSET', state, 'version', '1', 'call:' .. member, (ok and '1 ' or '0 ') .. tool)
  call('PEXPIRE', state, ttl)
  call('PEXPIRE', calls, ttl)
  call('PEXPIRE', counts, ttl)
  call('PEXPIRE', args, ttl)
  extend_streak(streak, score, result ~= '' and compare(seen, total))
  if ok and ARGV[7] == '1' then rules.advance(session, signature) end
  return 1
end

local done, reply = pcall(report)
if done then return reply end
-- A state that this step made must not stay behind without a TTL.
if session and not known then redis.pcall('DEL', state) end
return rules.refusal(reply)
