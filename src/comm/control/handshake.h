// Both ends of a connection prove that they know the token before either reads anything else from the other.
//
//   coordinator -> rank   greeting, 24 bytes: "LSCT", version, a nonce of 16 bytes
//   rank -> coordinator   answer, 48 bytes:   its own nonce, HMAC(token, "rank", both nonces)
//   coordinator -> rank   verdict, 32 bytes:  HMAC(token, "coordinator", both nonces), or zeros: refused
//
// Every part has one length, so that an unknown peer makes the coordinator hold 48 bytes and compute one HMAC, and no
// more. The token itself never travels, and an old answer is of no use with a new nonce. What follows is neither signed
// nor encrypted: the network between the ranks is trusted as far as MPI's and NCCL's own traffic is. Proofs are
// compared in a time that does not depend on where they differ.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/control/sha256.h"

namespace lockstep::control {

inline constexpr std::uint32_t kProtocol = 1;
inline constexpr std::size_t kNonceBytes = 16, kGreetingBytes = 24, kAnswerBytes = 48, kVerdictBytes = 32;

// What all ranks of a run share and nobody else knows.
class Token {
 public:
  // At least 16 characters of any kind; a UserError otherwise.
  explicit Token(std::string_view text);
  // A text that nobody can guess, to be handed to the ranks.
  static std::string make();

  std::string_view key() const { return {reinterpret_cast<const char*>(key_.data()), key_.size()}; }

 private:
  Digest key_;
};

std::string make_nonce();  // from the system's source of randomness
bool equal_in_constant_time(std::string_view a, std::string_view b);

// The coordinator's side of one connection.
class CoordinatorHandshake {
 public:
  explicit CoordinatorHandshake(const Token& token) : token_(token), nonce_(make_nonce()) {}
  std::string greeting() const;
  // The verdict on an answer of kAnswerBytes; empty where the answer is wrong.
  std::string verdict(std::string_view answer) const;

 private:
  const Token& token_;
  std::string nonce_;
};

// A rank's side. Each throws CommError with what is wrong with the other end.
class RankHandshake {
 public:
  explicit RankHandshake(const Token& token) : token_(token), nonce_(make_nonce()) {}
  std::string answer(std::string_view greeting);
  void check(std::string_view verdict) const;

 private:
  const Token& token_;
  std::string nonce_, their_nonce_;
};

std::string refusal();  // the verdict of zeros

}  // namespace lockstep::control
