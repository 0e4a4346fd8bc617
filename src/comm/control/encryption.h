// What the control plane needs of cryptography, all of it libsodium's: random bytes, a keyed hash (BLAKE2b), agreement
// on a key (X25519) and sealed messages (XChaCha20-Poly1305 in libsodium's secretstream).
//
// A stream of sealed messages runs one way under a key of its own. It begins with a header that is no secret; each
// message is then opened in the order in which it was sealed, whole, once, or not at all. Builds without libsodium
// throw UserError by name from everything here; require_encryption() asks for that before anything else is done.
// Functions may be called from any thread; an object belongs to one at a time.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::control {

inline constexpr std::size_t kSecretBytes = 32, kPublicBytes = 32;
inline constexpr std::size_t kSealBytes = 17;        // by which a sealed message is longer
inline constexpr std::size_t kSealHeaderBytes = 24;  // of a stream of them

bool has_encryption();      // whether this program was built with libsodium
void require_encryption();  // UserError where it was not

// A key; overwritten when it is no longer needed.
class Secret {
 public:
  Secret() = default;
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  unsigned char* data() { return bytes_.data(); }
  const unsigned char* data() const { return bytes_.data(); }
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::array<unsigned char, kSecretBytes> bytes_ = {};
};

std::string random_bytes(std::size_t count);
// In a time that does not depend on where they differ. Lengths are no secret.
bool equal_in_constant_time(std::string_view a, std::string_view b);
Secret hash_of(std::string_view bytes);
Secret hash_of(std::string_view bytes, const Secret& key);

// A pair of keys for one connection.
struct KeyPair {
  std::string shown;  // to the other end: kPublicBytes
  Secret kept;
  static KeyPair make();
};
// What both ends get from their own pair and what the other has shown; none where that is no key of anybody's.
std::optional<Secret> agree_on(const KeyPair& mine, std::string_view theirs);

class Sealer {
 public:
  explicit Sealer(const Secret& key);
  Sealer(Sealer&&) noexcept;
  Sealer& operator=(Sealer&&) noexcept;
  ~Sealer();

  const std::string& header() const { return header_; }
  void seal(std::string_view message, std::string& to);  // appends message.size() + kSealBytes

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string header_;
};

class Opener {
 public:
  Opener(const Secret& key, std::string_view header);
  Opener(Opener&&) noexcept;
  Opener& operator=(Opener&&) noexcept;
  ~Opener();

  // The next message; none where these are not exactly its bytes. Nothing can be opened after that.
  std::optional<std::string> open(std::string_view sealed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::control
