// Every call of operator new in the program, counted while somebody asks, by the thread that made it.
//
// counted_new.cpp replaces the operators of the program that it is linked into. What C libraries take by malloc (Open
// MPI) is not ours and is not seen. Builds with a sanitizer, which has operators of its own, count nothing.
#pragma once
#include <cstdint>

#include "support/sanitizer.h"

namespace lockstep::tests {

inline constexpr bool kCountsNew = !kUnderSanitizer;

struct NewCalls {
  std::int64_t calls = 0, bytes = 0, largest = 0, live = 0;  // live: calls less deletes
};

// From its making on, of all threads together. One at a time.
class CountNew {
 public:
  CountNew();
  ~CountNew();
  CountNew(const CountNew&) = delete;
  CountNew& operator=(const CountNew&) = delete;
  NewCalls so_far() const;
};

}  // namespace lockstep::tests
