// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for proofs that a peer knows the token.
//
// Functions of their bytes alone; any thread.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::control {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view bytes);

}  // namespace lockstep::control
