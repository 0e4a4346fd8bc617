// Flips bits in the memory of a process that runs, from outside: a fault of its memory, as it might happen.
//
// The place is found by its content: bytes that the process keeps unchanged, such as the rows of an embedding whose
// tokens the data does not have.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <span>

namespace lockstep::tests {

// Flips a bit in the middle of every copy of `content` in memory that the process can write; how many there were.
// The process is stopped meanwhile, for less than a second. -1 where its memory may not be read or written.
int flip_in_process(pid_t process, std::span<const std::byte> content);

}  // namespace lockstep::tests
