-- snapshot.lua: all that is held of a session, read in one step.
--
-- KEYS  1 calls  2 counts  3 state  4 args                      (see session.lua)
-- ARGV  none
-- Reply { server time in µs as text, ms until the session vanishes (-2 = there is none),
--         { member, score, ... } oldest first, { signature, count, ... }, { field, value, ... }, { signature, text, ... } }
-- Cost  O(calls in the window)

local calls, counts, state, args, call = KEYS[1], KEYS[2], KEYS[3], KEYS[4], redis.call
local time = call('TIME')
local ttl = call('PTTL', calls)
if ttl == -2 then ttl = call('PTTL', state) end
return {
  string.format('%.0f', time[1] * 1000000 + time[2]), ttl,
  call('ZRANGE', calls, 0, -1, 'WITHSCORES'),
  call('HGETALL', counts), call('HGETALL', state), call('HGETALL', args),
}
