// gzip and zstd data, written byte by byte from RFC 1952, RFC 1951 and RFC 8878: blocks that are stored as they are,
// and zstd's blocks that repeat one byte.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

inline std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

inline void put_little(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> 8 * i);
}

inline std::string gzip_member(std::string_view text) {
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  for (std::size_t at = 0; at == 0 || at < text.size(); at += 0xFFFF) {
    const std::string_view block = text.substr(at, 0xFFFF);
    put_little(out, at + block.size() >= text.size() ? 1 : 0, 1);  // the last; stored
    put_little(out, block.size(), 2);
    put_little(out, ~block.size(), 2);
    out += block;
  }
  put_little(out, crc32_of(text), 4);
  put_little(out, text.size(), 4);
  return out;
}

inline std::string zstd_beginning(int window_log) {
  std::string out = "\x28\xb5\x2f\xfd";
  out += '\0';  // no checksum, no size, a window
  out += static_cast<char>((window_log - 10) << 3);
  return out;
}

inline std::string zstd_frame(std::string_view text, int window_log = 17) {
  constexpr std::size_t kBlock = 100'000;
  std::string out = zstd_beginning(window_log);
  for (std::size_t at = 0; at == 0 || at < text.size(); at += kBlock) {
    const std::string_view block = text.substr(at, kBlock);
    put_little(out, (at + block.size() >= text.size() ? 1u : 0u) | block.size() << 3, 3);
    out += block;
  }
  return out;
}

// So many blocks of 128 KiB of one byte: four bytes each.
inline std::string zstd_bomb(char byte, std::size_t blocks) {
  std::string out = zstd_beginning(17);
  for (std::size_t i = 0; i < blocks; ++i) {
    put_little(out, (i + 1 == blocks ? 1u : 0u) | 1u << 1 | (std::size_t{128} << 10) << 3, 3);
    out += byte;
  }
  return out;
}

}  // namespace lockstep
