-- peek.lua: what record.lua would answer to one more call; writes nothing.
--
-- KEYS  1 calls  2 counts  3 state  4 args                      (see session.lua)
-- ARGV  1 signature  2 tool  3 window  4 max age in µs (0 = none)  5 pace in µs (0 = none)
-- Reply "<repeats> <total> <size> <failed> <stagnant> 0 <why it is halted>"
-- Cost  O(log window) and O(1) for each occurrence that would leave.

local calls, counts, state, call = KEYS[1], KEYS[2], KEYS[3], redis.call
local signature, tool = ARGV[1], ARGV[2]
local window, max_age, pace = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local rules = state_rules()

local function peek()
  local session = rules.read_state()
  local now = next_score()
  local size = call('ZCARD', calls)
  local leaving = size + 1 - window
  if max_age > 0 then
    leaving = math.max(leaving, call('ZCOUNT', calls, '-inf', now - max_age))
  end
  local cutoff = max_age > 0 and now - max_age or 0
  local before = tonumber(call('HGET', counts, signature) or 0)
  if not before then rules.corrupt(counts, signature) end
  local left = before
  if leaving > 0 then
    local gone = call('ZRANGE', calls, 0, leaving - 1, 'WITHSCORES')
    for i = 1, #gone, 2 do
      if gone[i]:sub(1, #signature + 1) == signature .. ' ' then left = left - 1 end
    end
    if gone[1] then cutoff = math.max(cutoff, tonumber(gone[#gone])) end
    size = size - #gone / 2
  end
  local total = left + 1
  local counted = ' ' .. total .. ' ' .. (size + 1) .. ' '
  if not session then return total .. counted .. '0 0 0 ' end

  local raw = call('HMGET', state, 'sig:' .. signature, 'tool:' .. tool)
  local seen = rules.read_seen(raw[1], signature)
  local discounted = math.max(0, rules.discounted_of(session, signature, seen, before) - (before - left))
  local streak = rules.read_streak(session, raw[2], tool, cutoff)
  if pace > 0 and left > 0 and seen and seen.last > 0 and now - seen.last >= pace then
    discounted, streak = left, nil
  end
  streak = streak or { failed = 0, stagnant = 0 }
  return (total - discounted) .. counted .. streak.failed .. ' ' .. streak.stagnant .. ' 0 ' .. session.halted
end

local ok, reply = pcall(peek)
return ok and reply or rules.refusal(reply)
