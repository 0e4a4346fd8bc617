#include "base/checksum.h"

#include <xxhash.h>

#include <new>

namespace lockstep {

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// The library's state wants more alignment than its type tells the language, so the library allocates it.
struct Checksum::State {
  static XXH3_state_t* raw(State* state) { return reinterpret_cast<XXH3_state_t*>(state); }
};

void Checksum::Free::operator()(State* state) const { XXH3_freeState(State::raw(state)); }

Checksum::Checksum() : state_(reinterpret_cast<State*>(XXH3_createState())) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(State::raw(state_.get()));
}

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(State::raw(state_.get()), bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(State::raw(state_.get())); }

}  // namespace lockstep
