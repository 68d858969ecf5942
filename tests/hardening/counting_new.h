// This executable's operator new counts, and fails when told to.
#ifndef SWAMP_TESTS_HARDENING_COUNTING_NEW_H_
#define SWAMP_TESTS_HARDENING_COUNTING_NEW_H_

#include <cstddef>

namespace swamp::test {

// allocations() is how often memory was asked for so far, by any thread.
std::size_t allocations();

// allocated_bytes() is how much all of them were, whether it was freed or not.
std::size_t allocated_bytes();

// fail_after() lets `count` more allocations through and then fails all;
// fail_never() ends that.
void fail_after(std::size_t count);
void fail_never();

}  // namespace swamp::test

#endif  // SWAMP_TESTS_HARDENING_COUNTING_NEW_H_
