"""The Lua scripts of the Redis broker. Each runs atomically and searches nothing: every access is O(log n).

```text
  {namespace}what        hash   job → generation:priority:lane
  {namespace}later       zset   delayed jobs by due time (milliseconds of Redis' own clock)
  {namespace}line:LANE   zset   due jobs by priority, then by number: the next one first
  {namespace}bell:LANE   list   one entry to wake each waiting worker
  {namespace}lanes       set    the lanes that have a line
  {namespace}built       a marker that disappears when Redis is emptied
```

KEYS[1] is the namespace. It contains a hash tag, so that a cluster keeps all of its keys on one node.
"""

from __future__ import annotations

_COMMON = """
local space = KEYS[1]
local what, later = space .. 'what', space .. 'later'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function parts(text)
  local generation, priority, lane = string.match(text, '^(%d+):(-?%d+):(.*)$')
  return tonumber(generation), tonumber(priority), lane
end

local function ring(lane)
  local bell = space .. 'bell:' .. lane
  if redis.call('LLEN', bell) < 16 then redis.call('RPUSH', bell, '1') end
end

local function make_ready(job, priority, lane)
  local score = -priority * 68719476736 + redis.call('INCR', space .. 'number')
  if redis.call('ZADD', space .. 'line:' .. lane, 'NX', score, job) == 1 then ring(lane) end
end
"""

#: Offer hints. ARGV: job, generation:priority:lane, delay in milliseconds; repeated.
OFFER = (
    _COMMON
    + """
local seen = {}
for i = 1, #ARGV, 3 do
  local job, text, delay = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local generation, priority, lane = parts(text)
  local before = redis.call('HGET', what, job)
  local newest = true
  if before and before ~= text then
    local old_generation, _, old_lane = parts(before)
    newest = not old_generation or old_generation <= generation
    if newest and old_lane then redis.call('ZREM', space .. 'line:' .. old_lane, job) end
  end
  if newest then
    if before ~= text then redis.call('HSET', what, job, text) end
    if not seen[lane] then redis.call('SADD', space .. 'lanes', lane); seen[lane] = true end
    if delay > 0 then
      redis.call('ZREM', space .. 'line:' .. lane, job)
      redis.call('ZADD', later, now + delay, job)
      -- A waiting worker waits only until the hint that was due first before: wake one.
      if redis.call('ZRANGE', later, 0, 0)[1] == job then ring(lane) end
    else
      redis.call('ZREM', later, job)
      make_ready(job, priority, lane)
    end
  end
end
return 0
"""
)

#: Take hints. ARGV: how many due hints to move at most, how many to take, lanes. Returns the milliseconds
#: until the next hint is due (-1: there is none), then job and generation in turn.
TAKE = (
    _COMMON
    + """
local due = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))
for _, job in ipairs(due) do
  local text = redis.call('HGET', what, job)
  if text then
    local _, priority, lane = parts(text)
    if lane then make_ready(job, priority, lane) end
  end
  redis.call('ZREM', later, job)
end
local most, taken = tonumber(ARGV[2]), {-1}
local left = most
for i = 3, #ARGV do
  if left <= 0 then break end
  local found = redis.call('ZPOPMIN', space .. 'line:' .. ARGV[i], left)
  for k = 1, #found, 2 do
    local text = redis.call('HGET', what, found[k])
    if text then
      taken[#taken + 1] = found[k]
      taken[#taken + 1] = string.match(text, '^%d+') or ''
      redis.call('HDEL', what, found[k])
    end
    left = left - 1
  end
end
local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
if first[2] then taken[1] = math.max(0, math.ceil(tonumber(first[2]) - now)) end
return taken
"""
)

#: Cancel hints. ARGV: jobs. Returns those that had a hint.
CANCEL = (
    _COMMON
    + """
local cancelled = {}
for _, job in ipairs(ARGV) do
  local text = redis.call('HGET', what, job)
  if text then
    local _, _, lane = parts(text)
    local removed = redis.call('ZREM', later, job)
    if lane then removed = removed + redis.call('ZREM', space .. 'line:' .. lane, job) end
    redis.call('HDEL', what, job)
    if removed > 0 then cancelled[#cancelled + 1] = job end
  end
end
return cancelled
"""
)

#: Count hints. ARGV: lanes. Returns whether `built` was called, the number of delayed hints, and of due hints
#: per lane.
SIZES = """
local space = KEYS[1]
local sizes = {redis.call('EXISTS', space .. 'built'), redis.call('ZCARD', space .. 'later')}
for _, lane in ipairs(ARGV) do sizes[#sizes + 1] = redis.call('ZCARD', space .. 'line:' .. lane) end
return sizes
"""

#: Delete all keys of this namespace.
FORGET = """
local space = KEYS[1]
for _, lane in ipairs(redis.call('SMEMBERS', space .. 'lanes')) do
  redis.call('UNLINK', space .. 'line:' .. lane, space .. 'bell:' .. lane)
end
redis.call('UNLINK', space .. 'what', space .. 'later', space .. 'lanes', space .. 'built')
return 0
"""
