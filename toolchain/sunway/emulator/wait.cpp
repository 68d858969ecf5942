#include "toolchain/sunway/emulator/wait.h"

#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway {

void wait_reply(const char* call, volatile void* reply, int value,
                const void* pc) {
  Slave& slave = require_self(call);
  if (slave.check) slave.check->before_wait(reply, value, call, pc);
  if (read_reply(reply) < value) {
    World& all = world();
    Lock lock(all.mutex);
    Wait wait{Wait::Kind::reply, pc, call,
              [&] { return read_reply(reply) >= value; }};
    wait.reply = reply;
    wait.value = value;
    block(slave, wait, lock);
  }
  if (slave.check) slave.check->after_wait(reply, value);
}

void replies_came() {
  const Lock lock(world().mutex);
  changed();
}

}  // namespace swamp::sunway
