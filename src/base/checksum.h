// Checksums: XXH3-64 (seed 0) of bytes, to notice damage and to tell contents apart. Not a signature: whoever can write
// the bytes can write the sum.
//
// The value is a function of the bytes alone: the same on every machine, and the same whether they come at once or in
// pieces of any size. Files store it (docs/formats.md), so the function never changes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

std::uint64_t checksum(std::span<const std::byte> bytes);

// The same sum, of bytes that come in pieces. One thread at a time.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;  // of all bytes so far; more may follow

 private:
  struct State;  // the library's
  struct Free {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Free> state_;
};

}  // namespace lockstep
