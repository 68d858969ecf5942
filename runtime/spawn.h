// The one road through the machine: spawn, tile loop, join.
#ifndef SWAMP_RUNTIME_SPAWN_H_
#define SWAMP_RUNTIME_SPAWN_H_

#include "runtime/job.h"
#include "runtime/ldm_arenas.h"
#include "runtime/machine_impl.h"

namespace swamp::runtime {

// run_job() runs a job: on the calling thread when it has one slave, else by
// a spawn and a join. `arenas` are the calling thread's. Throws Error, before
// the first slave starts, when a kernel asks for more LDM than there is or when
// memory runs out.
void run_job(Machine::Impl& machine, const Job& job, LdmArenas& arenas);

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_SPAWN_H_
