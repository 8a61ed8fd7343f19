"""What must happen on the server in one piece. All keys of a script are of one block, or one key: one slot.

Who computes a block holds a *lease*, which ends soon, and a *fence*, which holds the same token for an hour. Whatever
makes what is being computed outdated (another lease, a drop, a put without a token) removes or replaces both in the
same script. So either one alone proves that the token is still good: a server that evicts one of them loses nothing,
and one that evicts both refuses the put. No clock and no counter is involved.

Every put needs a token, if need be one that was seized a round trip earlier. So what was given up after a timeout but
still lies in some buffer does nothing when it arrives after a drop, or after a newer put.
"""

from __future__ import annotations

from mmcache.tiers.valkey.client import Script

_OLD_PIECES = """
local function pieces(head)
  local h=redis.pcall('GETRANGE',head,0,63)
  if type(h)~='string' or string.sub(h,1,4)~='MMCV' then return nil end
  local n=tonumber(string.sub(h,57,64),16)
  if not n or n<1 or n>4096 then return nil end
  local names={}
  for i=1,n do names[i]=head..':c:'..string.sub(h,41,56)..':'..(i-1) end
  return names
end
"""
"""Names of the pieces that a head refers to: see `record` for where they stand in it."""

COMMIT = Script(
    _OLD_PIECES
    + """
local head,lease,fence,token,px=KEYS[1],KEYS[2],KEYS[3],ARGV[1],tonumber(ARGV[2])
local staged={unpack(KEYS,4)}
local function live(names)
  for _,name in ipairs(names) do
    if px>0 then redis.call('PEXPIRE',name,px) else redis.call('PERSIST',name) end
  end
  return 1
end
local old,done=pieces(head),-1
if redis.call('GET',fence)~=token and redis.call('GET',lease)~=token then
  if old and old[1]==staged[1] then return live(staged) end
  if #staged>0 then redis.call('UNLINK',unpack(staged)) end
  if ARGV[4]=='1' and redis.call('EXISTS',lease,fence)>0 then
    if old then redis.call('UNLINK',unpack(old)) end
    redis.call('UNLINK',head)
  end
  return 0
end
if #staged==0 or redis.call('EXISTS',unpack(staged))==#staged then
  if ARGV[3]=='' then done=redis.pcall('RENAME',staged[1],head)
  elseif px>0 then done=redis.pcall('SET',head,ARGV[3],'PX',px)
  else done=redis.pcall('SET',head,ARGV[3]) end
end
if old then redis.pcall('UNLINK',unpack(old)) end
redis.call('UNLINK',lease,fence)
if done==-1 or done.err then
  redis.call('UNLINK',head,unpack(staged))
  return done
end
if ARGV[3]=='' then staged={head} end
return live(staged)
"""
)
"""Put. Keys: head, lease, fence, what was staged. Arguments: token, milliseconds to live (0 = for ever), the head
(empty = what was staged becomes it), 1 = the token was seized.

1 = stored, 0 = the token is no longer good, −1 = something staged is not there; an error = no room. Where it is not
stored for another reason than the token, an older value goes too; so it does where who overtook a seized token has
stored nothing yet, and may never do so. Done twice, it leaves a block in its pieces.
"""

_DROP = """
redis.call('UNLINK',KEYS[2],KEYS[3])
local old=pieces(KEYS[1])
if old then redis.pcall('UNLINK',unpack(old)) end
local dropped=redis.call('UNLINK',KEYS[1])
"""

DROP = Script(_OLD_PIECES + _DROP + "return dropped")
"""Forget a block, and let nothing be stored that is being computed. Keys: head, lease, fence. Whether it was there."""

ACQUIRE = Script("""
if redis.call('SET',KEYS[2],ARGV[1],'NX','PX',ARGV[2]) then
  redis.call('SET',KEYS[3],ARGV[1],'PX',ARGV[3])
  return 1
end
if redis.call('GET',KEYS[2])==ARGV[1] then return 1 end
return 0
""")
"""Become the leader. Keys as `DROP`. Arguments: token, milliseconds of the lease and of the fence. May be repeated."""

SEIZE = Script(
    _OLD_PIECES
    + """
local done=redis.pcall('SET',KEYS[2],ARGV[1],'PX',ARGV[2])
if not done.err then done=redis.pcall('SET',KEYS[3],ARGV[1],'PX',ARGV[3]) end
if not done.err then return 1 end
"""
    + _DROP
    + "return done"
)
"""Become the leader whoever is it, for a put that nobody's computation may overtake. Keys and arguments as `ACQUIRE`.
Where there is no room an older value goes."""

RENEW = Script("""
if redis.call('GET',KEYS[3])~=ARGV[1] and redis.call('GET',KEYS[2])~=ARGV[1] then return 0 end
redis.call('SET',KEYS[2],ARGV[1],'PX',ARGV[2])
redis.call('SET',KEYS[3],ARGV[1],'PX',ARGV[3])
return 1
""")
"""Remain the leader, also after a pause in which nobody else became it. Keys and arguments as `ACQUIRE`."""

RELEASE = Script("""
if redis.call('GET',KEYS[3])~=ARGV[1] and redis.call('GET',KEYS[2])~=ARGV[1] then return 0 end
return redis.call('UNLINK',KEYS[2],KEYS[3])
""")
"""Be the leader no more. Keys as `DROP`. Argument: token."""

LOOK = Script("return {redis.call('GETRANGE',KEYS[1],0,ARGV[1]),redis.call('TIME')}")
"""Key: the ledger of clocks. Argument: its last byte to read. That much of it, and the server's time."""

SWAP = Script("""
if redis.call('GETRANGE',KEYS[1],0,7)==ARGV[1] then redis.call('SET',KEYS[1],ARGV[2]) return 1 end
return 0
""")
"""Replace the ledger if its first 8 bytes are still those. Key: the ledger. Arguments: those bytes, the new ledger."""
