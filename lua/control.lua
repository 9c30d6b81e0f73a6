-- control.lua: what an operator or the caller says of a whole session.
--
-- KEYS  1 calls  2 counts  3 state  4 args                      (see session.lua)
-- ARGV  1 "halt", "resume", "progress" or "reset"  2 the id of a note of progress: the same one sent again changes
--       nothing  3 TTL in ms  4 the reason (halt), or the signature that made progress ("" = the caller said so)
-- Reply 1 = done, 0 = there was nothing to do
-- Cost  O(1); reset O(calls in the window)

local state, call = KEYS[3], redis.call
local op, token, ttl, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local rules = state_rules()
local session, is_new

local function control()
  if op == 'reset' then return call('DEL', unpack(KEYS)) > 0 and 1 or 0 end
  if op == 'resume' then
    return call('HDEL', state, 'halted')
  end
  session = rules.read_state()
  is_new = not session
  local halted = session and session.halted or ''
  if op == 'halt' then
    call('HSET', state, 'version', '1', 'halted', value)
    halted = value
  else
    if session and call('HGET', state, 'epoch_token') == token then return 0 end
    rules.advance(session or { epoch = 0, by = '', before = 0 }, value)
    call('HSET', state, 'version', '1', 'epoch_token', token)
  end
  if halted ~= '' then ttl = rules.halt_ttl(ttl) end
  for _, key in ipairs(KEYS) do call('PEXPIRE', key, ttl) end
  return 1
end

local ok, reply = pcall(control)
if ok then return reply end
-- A state that this step made must not stay behind without a TTL.
if is_new then redis.pcall('DEL', state) end
return rules.refusal(reply)
