// What a connection between two ranks begins with, so that a stranger who finds the port is no rank.
//
//   who connects -> who listens   hello, 48 bytes:  "LSTCP", version; the world's first key; from and to which rank
//   who listens -> who connects   answer, 48 bytes: the same with the world's second key
//
// The keys are random, made by rank 0 for one world, and known to those who share its control plane. All but the ranks
// is compared at once, in a time that does not depend on where it differs, before anything is read out of it. What
// follows is neither signed nor encrypted: the network between the ranks is trusted as far as MPI's own traffic is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::tcp {

inline constexpr std::size_t kHelloBytes = 48, kKeyBytes = 32;

// Of one world.
struct WorldKeys {
  std::string hello, answer;  // kKeyBytes each

  static WorldKeys make();
  std::string text() const;                         // hexadecimal, to be handed to the ranks
  static WorldKeys parse(const std::string& text);  // CommError where it is none
};

struct Ends {
  int from = 0, to = 0;  // ranks
};

std::string hello_with(const std::string& key, Ends ends);
// Nothing where the bytes, kHelloBytes of them, are not of this key.
std::optional<Ends> check_hello(std::string_view bytes, const std::string& key);

}  // namespace lockstep::tcp
