"""What Redis does in one step, as Lua scripts: they run on every Redis and Valkey from version 6.2.

A log is a stream whose ids are `epoch-position`: the epoch is the millisecond in which the log began, so that a reader
knows a log that was lost and begun anew. The last entry of each append carries the append's token; an append that comes
again after a broken connection is found by it. The closing entry carries `closed` instead.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Script:
    """One script and the name by which a server that has it loaded runs it."""

    text: str

    @property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


CLOSED, MOVED = -1, -2
"""What APPEND answers in place of a position."""

TAIL = """
local function tail(log)
  local entry = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  if not entry then return nil, 0 end
  local dash = string.find(entry[1], '-', 1, true)
  return string.sub(entry[1], 1, dash - 1), tonumber(string.sub(entry[1], dash + 1)), entry[2][3], entry[2][4]
end
"""

# KEYS: log. ARGV: token, after or '', 1 if it closes, milliseconds to live or '', channel, entries.
APPEND = Script(
    TAIL
    + """
local epoch, last, mark, token = tail(KEYS[1])
if token == ARGV[1] then return last end
if mark == 'closed' then return -1 end
if ARGV[2] ~= '' and tonumber(ARGV[2]) ~= last then return -2 end
if not epoch then
  local now = redis.call('TIME')
  epoch = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
end
local news = {string.format('%s %d %s\\n', epoch, last + 1, ARGV[3])}
for i = 6, #ARGV do
  last = last + 1
  local id = string.format('%s-%d', epoch, last)
  if i < #ARGV then
    redis.call('XADD', KEYS[1], id, 'value', ARGV[i])
  else
    redis.call('XADD', KEYS[1], id, 'value', ARGV[i], ARGV[3] == '1' and 'closed' or 'token', ARGV[1])
  end
  news[#news + 1] = struct.pack('>I4', #ARGV[i])
  news[#news + 1] = ARGV[i]
end
if ARGV[4] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
redis.call('PUBLISH', ARGV[5], table.concat(news))
return last
"""
)

# KEYS: log. ARGV: after, limit. Nothing, or {epoch, last, 1 if closed, entries from after + 1 on}.
READ = Script(
    TAIL
    + """
local epoch, last, mark = tail(KEYS[1])
if not epoch then return {} end
local page = {epoch, last, mark == 'closed' and 1 or 0}
local after = string.format('(%s-%s', epoch, ARGV[1])
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], after, '+', 'COUNT', ARGV[2])) do
  page[#page + 1] = entry[2][2]
end
return page
"""
)

# KEYS: document, index of the kind, expiries of the kind, counter.
# ARGV: put, add or replace; key, value, owner, milliseconds to live or '', version; prefixes of documents and indexes.
# False, or {owner, version, created}. Expired documents leave the indexes here, a few at a time.
WRITE = Script("""
local now = redis.call('TIME')
local milliseconds = now[1] * 1000 + math.floor(now[2] / 1000)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', milliseconds, 'LIMIT', 0, 20)) do
  local cut = string.find(member, '\\n', 1, true)
  local owner, key = string.sub(member, 1, cut - 1), string.sub(member, cut + 1)
  if redis.call('EXISTS', ARGV[7] .. key) == 0 then
    redis.call('ZREM', KEYS[2], key)
    redis.call('ZREM', ARGV[8] .. owner, key)
    redis.call('ZREM', KEYS[3], member)
  end
end
local how, key = ARGV[1], ARGV[2]
local found = redis.call('HMGET', KEYS[1], 'owner', 'version', 'created', 'seq')
local old, version, created, seq = found[1], found[2], found[3], found[4]
if how == 'add' and version then return false end
if how == 'replace' and version ~= ARGV[6] then return false end
local owner = how == 'replace' and old or ARGV[4]
if not version then
  version, seq = 0, redis.call('INCR', KEYS[4])
  created = string.format('%d.%06d', now[1], now[2])
end
version = version + 1
redis.call('HSET', KEYS[1], 'value', ARGV[3], 'owner', owner, 'version', version, 'created', created, 'seq', seq)
if old and old ~= owner then
  redis.call('ZREM', ARGV[8] .. old, key)
  redis.call('ZREM', KEYS[3], old .. '\\n' .. key)
end
redis.call('ZADD', KEYS[2], seq, key)
redis.call('ZADD', ARGV[8] .. owner, seq, key)
if ARGV[5] ~= '' then
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('ZADD', KEYS[3], string.format('%.0f', milliseconds + ARGV[5]), owner .. '\\n' .. key)
elseif how == 'put' then
  redis.call('PERSIST', KEYS[1])
  redis.call('ZREM', KEYS[3], owner .. '\\n' .. key)
end
return {owner, version, created}
""")

# KEYS: document, index of the kind, expiries of the kind. ARGV: key, prefix of indexes.
DELETE = Script("""
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', ARGV[2] .. owner, ARGV[1])
redis.call('ZREM', KEYS[3], owner .. '\\n' .. ARGV[1])
return 1
""")

# KEYS: index to list, index of the kind. ARGV: limit, key to begin after or '', prefix of documents.
# {key, value, owner, version, created, key, ...}
LIST = Script("""
local bound, limit = '+inf', tonumber(ARGV[1])
if ARGV[2] ~= '' then
  local seq = redis.call('ZSCORE', KEYS[2], ARGV[2])
  if not seq then return {} end
  bound = '(' .. seq
end
local found, offset = {}, 0
while true do
  local keys = redis.call('ZREVRANGEBYSCORE', KEYS[1], bound, '-inf', 'LIMIT', offset, 100)
  for _, key in ipairs(keys) do
    if #found >= limit * 5 then return found end
    local document = redis.call('HMGET', ARGV[3] .. key, 'value', 'owner', 'version', 'created')
    if document[1] then
      found[#found + 1] = key
      for i = 1, 4 do found[#found + 1] = document[i] end
    end
  end
  if #keys < 100 then return found end
  offset = offset + #keys
end
""")

# KEYS: bucket. ARGV: amount, capacity, seconds to fill. 0 when it was taken, else the seconds to wait.
TAKE = Script("""
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local amount, capacity, seconds = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'level', 'filled')
local level, filled = tonumber(bucket[1] or capacity), tonumber(bucket[2] or now)
level = math.min(capacity, level + math.max(0, now - filled) * capacity / seconds)
if level < amount then return string.format('%.6f', (amount - level) * seconds / capacity) end
redis.call('HSET', KEYS[1], 'level', string.format('%.9f', level - amount), 'filled', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(seconds * 1000))
return '0'
""")

SCRIPTS = (APPEND, READ, WRITE, DELETE, LIST, TAKE)
