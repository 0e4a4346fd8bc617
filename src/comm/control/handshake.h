// Both ends of a connection prove that they know the token, and get two keys that nobody else knows, before either
// reads anything else from the other.
//
//   listening -> connecting   greeting, 40 bytes: "LSCT", version, a nonce of 32 bytes
//   connecting -> listening   answer, 64 bytes:   a fresh public key, proof(token, "rank", nonce, that key)
//   listening -> connecting   verdict, 64 bytes:  a fresh public key, proof(token, "coordinator", nonce, both keys);
//                                                 or zeros: refused
//
// Every part has one length: an unknown peer makes the listening end draw a nonce, hold 64 bytes and compute one hash,
// and no more. Its own key pair is made only for a peer that has proved the token. Proofs are hashes keyed with the
// token (BLAKE2b), which itself never travels; they are compared in constant time. An old answer does not fit a new
// nonce, an old verdict does not fit a new key. The keys of the two directions are hashes, keyed with the token, of
// what X25519 makes of the two fresh key pairs: whoever learns the token later cannot read what was recorded before,
// and whoever does not know the token cannot stand in the middle. What follows is sealed with them
// (comm/control/frame_stream.h).
//
// This is the exchange alone, without sockets. Programs use comm/control/listener.h and comm/control/connector.h.
#pragma once
#include <cstdint>

#include "comm/control/encryption.h"

namespace lockstep::control {

inline constexpr std::uint32_t kProtocol = 2;
inline constexpr std::size_t kNonceBytes = 32, kProofBytes = kSecretBytes;
inline constexpr std::size_t kGreetingStart = 8;  // magic and version, which every version begins with
inline constexpr std::size_t kGreetingBytes = kGreetingStart + kNonceBytes;
inline constexpr std::size_t kAnswerBytes = kPublicBytes + kProofBytes, kVerdictBytes = kPublicBytes + kProofBytes;

// What all ranks of a run share and nobody else knows.
class Token {
 public:
  // At least 16 characters of any kind; a UserError otherwise. One that a person has thought up can be guessed, at
  // leisure, by whoever records a handshake: make() it.
  explicit Token(std::string_view text);
  // A text that nobody can guess, to be handed to the ranks: 64 hexadecimal digits.
  static std::string make();

  const Secret& key() const { return key_; }

 private:
  Secret key_;
};

struct SessionKeys {
  Secret sending, receiving;
};

// The listening end of one connection. The token outlives it.
class CoordinatorHandshake {
 public:
  struct Verdict {
    std::string bytes;
    SessionKeys keys;
  };

  explicit CoordinatorHandshake(const Token& token) : token_(&token), nonce_(random_bytes(kNonceBytes)) {}
  std::string greeting() const;
  // On an answer of kAnswerBytes; none where it is wrong.
  std::optional<Verdict> verdict(std::string_view answer) const;

 private:
  const Token* token_;
  std::string nonce_;
};

// The connecting end. Each call throws CommError with what is wrong with the other end.
class RankHandshake {
 public:
  explicit RankHandshake(const Token& token) : token_(&token) {}
  // The first kGreetingStart bytes: another version's greeting may have another length.
  static void check_start(std::string_view start);
  std::string answer(std::string_view greeting);
  SessionKeys keys(std::string_view verdict) const;

 private:
  const Token* token_;
  std::string nonce_;
  KeyPair mine_ = {};
};

std::string refusal();  // the verdict of zeros

}  // namespace lockstep::control
