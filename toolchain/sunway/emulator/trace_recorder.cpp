#include "toolchain/sunway/emulator/trace_recorder.h"

#include <sched.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "toolchain/sunway/emulator/host_process.h"

namespace swamp::sunway {
namespace {

unsigned long thread_time() { return nanoseconds(CLOCK_THREAD_CPUTIME_ID); }

// clock_time() returns what thread_time() itself takes.
unsigned long clock_time() {
  static const unsigned long least = [] {
    unsigned long found = ~0ul;
    for (int i = 0; i < 64; ++i) {
      const unsigned long begin = thread_time();
      found = std::min(found, thread_time() - begin);
    }
    return found;
  }();
  return least;
}

// Words counts how often each reply word was raised, and each lock released, in
// this launch.
class Words {
 public:
  std::uint64_t add(Word word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ++counts_[word];
  }
  std::uint64_t count(Word word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = counts_.find(word);
    return found == counts_.end() ? 0 : found->second;
  }
  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<Word, std::uint64_t> counts_;
};
Words& raised() {
  static auto* const all = new Words;
  return *all;
}
Words& unlocked() {
  static auto* const all = new Words;
  return *all;
}

// Recorder records one slave.
class Recorder final : public SlaveObserver {
 public:
  explicit Recorder(Slave& slave) : slave_(slave) {}
  std::vector<Op> ops;

  void function_begins() override {
    released_.clear();
    acquired_.clear();
    last_ = thread_time();
  }
  void function_ends() override { computed(); }

  void issue(const Transfer& t, const void*, bool) override {
    record(t);
    carry_out(t);
    raise(t.reply);
    if (t.reply != nullptr) add_reply(t.reply);
    last_ = thread_time();
  }
  void blocking(const Transfer& t, const void*) override {
    record(t);
    carry_out(t);
    add(Op::What::complete, t.call, nullptr, 0);
    last_ = thread_time();
  }
  bool allows(const Transfer& t, const void*) override {
    record(t);
    return true;
  }
  void broadcast(const Transfer&, const void*) override {}
  void evicts(const volatile void*, const volatile void*) override {}
  void dma_barrier() override {
    computed();
    add(Op::What::complete, "dma_barrier", &slave_, 0);
  }

  bool allows_rma(const Rma& rma, const Slave&, bool sends) override {
    if (rma.length <= 0) return false;
    computed();
    if (sends) transfer(Op::What::rma, rma.call, rma.length);
    return true;
  }
  void sent(const Rma& rma) override {
    raise(rma.local_reply);
    last_ = thread_time();
  }
  void fetched(const Transfer& t, const void*) override {
    transfer(Op::What::rma, t.call, t.length);
    if (t.reply == nullptr) {
      add(Op::What::complete, t.call, nullptr, 0);
    } else {
      raise(t.reply);
    }
    last_ = thread_time();
  }
  void replies(const volatile void* reply) override { raise(reply); }
  bool reaches(const Slave&, const std::byte*, long, const char*,
               const void*) override {
    return true;
  }
  void received(std::byte*, long, Slave& sender, const volatile void* reply,
                const char*, const void*) override {
    static_cast<Recorder&>(*sender.observer).raise(reply);
  }

  void wait_begins(volatile void*, int, const char* call,
                   const void*) override {
    computed();
    call_ = call;
  }
  void wait_ends(volatile void* reply, int value) override {
    // All but the last raises, as many as the word is above the value.
    const auto count = static_cast<long>(raised().count(reply));
    const long above = read_reply(reply) - value;
    add(Op::What::wait, call_, reply,
        static_cast<std::uint64_t>(std::max(count - above, 0l)));
    last_ = thread_time();
  }

  bool operand(const void*, std::size_t, bool, const char*,
               const void*) override {
    return true;
  }
  void allocated(std::size_t, std::size_t, std::size_t, const void*) override {}
  void freed(std::size_t, std::size_t, std::size_t, const void*) override {}

  void releases(Sync kind, Word object, std::uint64_t number) override {
    computed();
    if (kind == Sync::barrier) number = released_[object]++;
    if (kind == Sync::lock) number = unlocked().add(object);
    add(Op::What::release, "", object, number);
  }
  void acquires(Sync kind, Word object, std::uint64_t number) override {
    if (kind == Sync::barrier) number = acquired_[object]++;
    if (kind == Sync::lock) number = unlocked().count(object);
    add(Op::What::acquire,
        kind == Sync::barrier ? "barrier"
        : kind == Sync::lock  ? "lock"
                              : "message",
        object, number);
    last_ = thread_time();
  }
  void gives_way() override { computed(); }
  void tried(Word, const void*) override {
    sched_yield();
    last_ = thread_time();
  }
  void atomic(Word, std::size_t, bool, const void*) override {
    last_ = thread_time();
  }

 private:
  void add(Op::What what, const char* name, Word object, std::uint64_t number) {
    ops.push_back({what, name, object, number, 0, 0, {}});
  }
  // computed() records the time since the last call of the library.
  void computed() {
    const unsigned long now = thread_time();
    const unsigned long clock = clock_time();
    if (now > last_ + clock) {
      add(Op::What::compute, "", nullptr, now - last_ - clock);
    }
    last_ = now;
  }
  void transfer(Op::What what, const char* call, long bytes) {
    add(what, call, nullptr, static_cast<std::uint64_t>(bytes));
  }
  void record(const Transfer& t) {
    computed();
    const auto what = t.kind == Transfer::Kind::get   ? Op::What::get
                      : t.kind == Transfer::Kind::put ? Op::What::put
                                                      : Op::What::rma;
    transfer(what, t.call, std::max(t.length, 0l));
    Op& op = ops.back();
    op.block = t.stride == 0 ? t.length : t.block;
    op.stride = t.stride;
    if (t.length <= 0 || what == Op::What::rma) return;
    for_blocks(t, [&](std::byte* main, std::byte*, std::size_t bytes) {
      op.lines.add(predict::lines_of(main, bytes));
    });
  }
  void raise(Word reply) {
    if (reply == nullptr) return;
    (void)raised().add(reply);
    add(Op::What::raise, "", reply, 0);
  }

  Slave& slave_;
  unsigned long last_ = 0;
  const char* call_ = "";
  std::map<Word, std::uint64_t> released_, acquired_;  // of this launch
};

}  // namespace

std::unique_ptr<SlaveObserver> make_recorder(Slave& slave) {
  return std::make_unique<Recorder>(slave);
}

std::vector<Op>& recorded(const Slave& slave) {
  return static_cast<Recorder&>(*slave.observer).ops;
}

void clear_raised() { raised().clear(); }

void master_unlocks(Word lock) { (void)unlocked().add(lock); }

}  // namespace swamp::sunway
