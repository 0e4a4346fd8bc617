#include "comm/control/encryption.h"

#include <sodium.h>

#include "comm/error.h"

namespace lockstep::control {

namespace {

static_assert(kSecretBytes == crypto_secretstream_xchacha20poly1305_KEYBYTES);
static_assert(kSecretBytes == crypto_scalarmult_BYTES && kSecretBytes == crypto_scalarmult_SCALARBYTES);
static_assert(kSecretBytes >= crypto_generichash_BYTES_MIN && kSecretBytes <= crypto_generichash_KEYBYTES_MAX);
static_assert(kPublicBytes == crypto_scalarmult_BYTES);
static_assert(kSealBytes == crypto_secretstream_xchacha20poly1305_ABYTES);
static_assert(kSealHeaderBytes == crypto_secretstream_xchacha20poly1305_HEADERBYTES);

const unsigned char* raw(std::string_view bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }
unsigned char* raw(std::string& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

Secret hash(std::string_view bytes, const unsigned char* key, std::size_t key_bytes) {
  require_encryption();
  Secret digest;
  crypto_generichash(digest.data(), kSecretBytes, raw(bytes), bytes.size(), key, key_bytes);
  return digest;
}

}  // namespace

bool has_encryption() { return true; }

void require_encryption() {
  static const bool ready = sodium_init() >= 0;
  if (!ready) throw EnvironmentError("libsodium does not start: the system has no source of random bytes");
}

Secret::~Secret() { sodium_memzero(bytes_.data(), bytes_.size()); }

std::string random_bytes(std::size_t count) {
  require_encryption();
  std::string bytes(count, '\0');
  randombytes_buf(bytes.data(), count);
  return bytes;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Secret hash_of(std::string_view bytes) { return hash(bytes, nullptr, 0); }
Secret hash_of(std::string_view bytes, const Secret& key) { return hash(bytes, key.data(), kSecretBytes); }

KeyPair KeyPair::make() {
  require_encryption();
  KeyPair pair;
  randombytes_buf(pair.kept.data(), kSecretBytes);
  pair.shown.resize(kPublicBytes);
  crypto_scalarmult_base(raw(pair.shown), pair.kept.data());
  return pair;
}

std::optional<Secret> agree_on(const KeyPair& mine, std::string_view theirs) {
  Secret agreed;
  if (theirs.size() != kPublicBytes || crypto_scalarmult(agreed.data(), mine.kept.data(), raw(theirs)) != 0)
    return std::nullopt;
  return agreed;
}

struct Sealer::State {
  crypto_secretstream_xchacha20poly1305_state stream;
  ~State() { sodium_memzero(&stream, sizeof stream); }
};

Sealer::Sealer(const Secret& key) : state_(std::make_unique<State>()), header_(kSealHeaderBytes, '\0') {
  require_encryption();
  crypto_secretstream_xchacha20poly1305_init_push(&state_->stream, raw(header_), key.data());
}
Sealer::Sealer(Sealer&&) noexcept = default;
Sealer& Sealer::operator=(Sealer&&) noexcept = default;
Sealer::~Sealer() = default;

void Sealer::seal(std::string_view message, std::string& to) {
  const std::size_t begin = to.size();
  to.resize(begin + message.size() + kSealBytes);
  crypto_secretstream_xchacha20poly1305_push(&state_->stream, raw(to) + begin, nullptr, raw(message), message.size(),
                                             nullptr, 0, 0);
}

struct Opener::State {
  crypto_secretstream_xchacha20poly1305_state stream;
  bool broken = false;
  ~State() { sodium_memzero(&stream, sizeof stream); }
};

Opener::Opener(const Secret& key, std::string_view header) : state_(std::make_unique<State>()) {
  require_encryption();
  LOCKSTEP_CHECK(header.size() == kSealHeaderBytes, "a header of {} bytes", header.size());
  crypto_secretstream_xchacha20poly1305_init_pull(&state_->stream, raw(header), key.data());
}
Opener::Opener(Opener&&) noexcept = default;
Opener& Opener::operator=(Opener&&) noexcept = default;
Opener::~Opener() = default;

std::optional<std::string> Opener::open(std::string_view sealed) {
  std::string message(sealed.size() < kSealBytes ? 0 : sealed.size() - kSealBytes, '\0');
  if (sealed.size() < kSealBytes ||
      crypto_secretstream_xchacha20poly1305_pull(&state_->stream, raw(message), nullptr, nullptr, raw(sealed),
                                                 sealed.size(), nullptr, 0) != 0)
    state_->broken = true;
  if (state_->broken) return std::nullopt;
  return message;
}

}  // namespace lockstep::control
