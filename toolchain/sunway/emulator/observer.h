// What the machine tells about itself. The observer is the checker (check/) in
// check mode, and the tracer (trace.cpp) with SWAMP_TRACE. Otherwise there is
// none, and the pointers are null.
#ifndef SWAMP_SUNWAY_EMULATOR_OBSERVER_H_
#define SWAMP_SUNWAY_EMULATOR_OBSERVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace swamp::sunway {

struct Rma;
struct Slave;
struct Transfer;

// The kind of object by which two slaves synchronise:
// SlaveObserver::releases().
enum class Sync { barrier, message, lock };

// SlaveObserver observes one slave. The slave's own thread calls it unless a
// function says otherwise. `pc` is where the program called the library, and
// `call` is the name of the function that it called.
class SlaveObserver {
 public:
  virtual ~SlaveObserver() = default;

  // thread_begins() is the first call of the slave's thread.
  virtual void thread_begins() {}
  // launched() is called by the master, while the slave does not run.
  virtual void launched() {}
  virtual void function_begins() = 0;
  virtual void function_ends() = 0;
  // stack_bytes() is the largest size of the stack that was seen in this
  // launch.
  virtual std::size_t stack_bytes() const noexcept { return 0; }

  // turn_lost() is called by another thread after the slave has lost the turn
  // in a loop that makes no calls: the observer must call take_turn() at the
  // slave's next access. turn_regained() is called after that.
  virtual void turn_lost() noexcept {}
  virtual void turn_regained() {}

  // DMA. issue(), for a transfer with a reply word, and blocking() carry out
  // the transfer and raise the word, now or at the wait, unless it breaks a
  // rule. With `now` the data of a get from another LDM moves at once, because
  // its owner gets a reply.
  virtual void issue(const Transfer& transfer, const void* pc, bool now) = 0;
  virtual void blocking(const Transfer& transfer, const void* pc) = 0;
  // allows() is called at the beginning of a get for several slaves, and
  // broadcast() before it is carried out. allows() returns whether it may be.
  virtual bool allows(const Transfer& transfer, const void* pc) = 0;
  virtual void broadcast(const Transfer& transfer, const void* pc) = 0;
  // dma_barrier() completes all transfers.
  virtual void dma_barrier() = 0;

  // RMA. allows_rma() is called at the beginning and returns whether it may be
  // carried out. `other` is the remote slave, or this one for a broadcast;
  // `sends` is false for a get.
  virtual bool allows_rma(const Rma& rma, const Slave& other, bool sends) = 0;
  // sent() is called at the end of a send, after its replies, and
  // fetched() after a get that was not passed to issue().
  virtual void sent(const Rma& rma) = 0;
  // rma_barrier() completes all RMA that the slave began.
  virtual void rma_barrier() {}
  virtual void fetched(const Transfer& transfer, const void* pc) = 0;
  // replies() is called before this slave raises another slave's reply word.
  virtual void replies(const volatile void* reply) = 0;
  // Data for another slave, by RMA or a DMA broadcast: reaches() returns
  // whether the sender may write into this range of `other`. received() is a
  // call of the receiver's observer by the sender's thread, after it wrote;
  // `reply` is the receiver's reply word or nullptr.
  virtual bool reaches(const Slave& other, const std::byte* ldm, long length,
                       const char* call, const void* pc) = 0;
  virtual void received(std::byte* ldm, long length, Slave& sender,
                        const volatile void* reply, const char* call,
                        const void* pc) = 0;

  // A wait until a reply word has the value.
  virtual void wait_begins(volatile void* reply, int value, const char* call,
                           const void* pc) = 0;
  virtual void wait_ends(volatile void* reply, int value) = 0;

  // operand() is called before the library reads or writes an array of the
  // slave's program by instructions. It returns whether it may.
  virtual bool operand(const void* address, std::size_t bytes, bool write,
                       const char* call, const void* pc) = 0;

  // LDM memory, after it was allocated or freed. `offset` is what LdmHeap
  // returned, `stack` is the size of the caller's stack, `piece_bytes` is the
  // size of the piece or LdmHeap::kNone, and `length` is what the caller of
  // ldm_free() passed.
  virtual void allocated(std::size_t offset, std::size_t bytes,
                         std::size_t stack, const void* pc) = 0;
  virtual void freed(std::size_t offset, std::size_t piece_bytes,
                     std::size_t length, const void* pc) = 0;
  virtual void freed_all() {}

  // What a slave did before releases() happens before what another one does
  // after acquires() of the same object. `number` is the generation of a
  // barrier, the number of a message, or 0 for a lock.
  virtual void releases(Sync kind, const volatile void* object,
                        std::uint64_t number) = 0;
  virtual void acquires(Sync kind, const volatile void* object,
                        std::uint64_t number) = 0;
  // evicts() is for a call that empties the slave's data cache, or the lines
  // of [begin, end) of it.
  virtual void evicts(const volatile void* begin, const volatile void* end) = 0;
  // gives_way() is called before an attempt to take a lock, and before and
  // after an atomic operation. In some replays of check mode others run first,
  // so that all slaves share work that is taken by locks or atomics. Copy mode
  // does not do it: a lock made of atomics may be free only while nobody tries
  // to take it.
  virtual void gives_way() = 0;
  // tried() is called after an attempt to take a lock that was not free, and
  // atomic() before an atomic operation.
  virtual void tried(const volatile void* word, const void* pc) = 0;
  virtual void atomic(const volatile void* word, std::size_t bytes, bool writes,
                      const void* pc) = 0;
};

// Observer observes the machine and its masters. `mask` selects core groups.
class Observer {
 public:
  // make() makes the observer of a new slave.
  virtual std::unique_ptr<SlaveObserver> make(Slave& slave) = 0;

  // refused() is for a call of a master that is a mistake. `why` is what the
  // master does wrong: "waits for slaves that do not run".
  virtual void refused(const void* pc, const char* why) = 0;

  // launched(), joining() and joined() are called under the machine's mutex:
  // before the slaves run, before the master waits for them, and after that.
  // `frame` is the frame of the joining function. The mask of joining() is 0
  // for a wait for a single slave.
  virtual void launched(unsigned mask, const void* argument,
                        const void* pc) = 0;
  virtual void joining(unsigned mask, const void* pc, const void* frame) = 0;
  virtual void joined(unsigned mask) = 0;

  // A master's part in a barrier with slaves or in a lock, under the machine's
  // mutex: see SlaveObserver::releases(). The slaves of `mask` may see from now
  // on what the master has written.
  virtual void releases(const volatile void* object, std::uint64_t number,
                        unsigned mask) = 0;
  virtual void acquires(const volatile void* object, std::uint64_t number,
                        unsigned mask) = 0;
  // atomic() is called before an atomic operation of a master.
  virtual void atomic(const volatile void* word, std::size_t bytes) = 0;
  // polls() is called if a master looks whether slaves have ended.
  virtual void polls() noexcept = 0;

  // allocated() is for main memory that was allocated for the caller at `pc`.
  virtual void allocated(const void* memory, std::size_t bytes,
                         const void* pc) = 0;
  // not_cached() is for memory that slaves access past their caches from now
  // on: all, or what the pointer points to.
  virtual void not_cached(const volatile void* pointer) = 0;

  // halting() is called by athread_halt(), exiting() at the end of the program.
  virtual void halting(const void* pc) = 0;
  virtual void exiting() = 0;

 protected:
  ~Observer() = default;  // it is never destroyed
};

// Set before main().
inline Observer* observer = nullptr;

// start_trace() makes the tracer the observer; a file that cannot be written
// ends the program.
void start_trace();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_OBSERVER_H_
