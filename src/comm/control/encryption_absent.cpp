// Stands in for encryption.cpp in builds without libsodium: nobody can prove a token or share a key.
#include "base/error.h"
#include "comm/control/encryption.h"

namespace lockstep::control {

namespace {
[[noreturn]] void absent() {
  throw UserError(ExitCode::environment,
                  "ranks under a launcher's variables (RANK, WORLD_SIZE) meet over encrypted connections, and this "
                  "program was built without libsodium",
                  "install libsodium-dev and build again, or start the ranks with mpirun");
}
}  // namespace

bool has_encryption() { return false; }
void require_encryption() { absent(); }

Secret::~Secret() = default;
std::string random_bytes(std::size_t) { absent(); }
bool equal_in_constant_time(std::string_view, std::string_view) { absent(); }
Secret hash_of(std::string_view) { absent(); }
Secret hash_of(std::string_view, const Secret&) { absent(); }
KeyPair KeyPair::make() { absent(); }
std::optional<Secret> agree_on(const KeyPair&, std::string_view) { absent(); }

struct Sealer::State {};
Sealer::Sealer(const Secret&) { absent(); }
Sealer::Sealer(Sealer&&) noexcept = default;
Sealer& Sealer::operator=(Sealer&&) noexcept = default;
Sealer::~Sealer() = default;
void Sealer::seal(std::string_view, std::string&) { absent(); }

struct Opener::State {};
Opener::Opener(const Secret&, std::string_view) { absent(); }
Opener::Opener(Opener&&) noexcept = default;
Opener& Opener::operator=(Opener&&) noexcept = default;
Opener::~Opener() = default;
std::optional<std::string> Opener::open(std::string_view) { absent(); }

}  // namespace lockstep::control
