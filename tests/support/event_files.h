// Reads TensorBoard's event files, with nothing of the program that writes them: the checksum bit by bit from its
// polynomial, the records and messages from their formats.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::tests {

// CRC-32C: polynomial x^32 + x^28 + x^27 + …, 0x1EDC6F41, each byte's lowest bit first.
inline std::uint32_t crc32c_by_bits(const std::string& bytes) {
  std::uint32_t remainder = 0xFFFFFFFF;  // the highest power in the highest bit
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t in = static_cast<unsigned char>(c) >> bit & 1u;
      const bool carry = (remainder >> 31 ^ in) != 0;
      remainder = remainder << 1 ^ (carry ? 0x1EDC6F41u : 0u);
    }
  std::uint32_t reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (remainder >> bit & 1u) << (31 - bit);
  return ~reversed;
}

struct ReadEvent {
  double time = 0;
  std::int64_t step = 0;
  std::string version;
  int status = 0;  // of a session log; 1: START
  std::map<std::string, float> scalars;
};

class EventFileReader {
 public:
  explicit EventFileReader(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }

  // Throws std::runtime_error where the file is not a sequence of whole records with right checksums.
  std::vector<ReadEvent> all() const {
    std::vector<ReadEvent> events;
    for (std::size_t at = 0; at < bytes_.size();) {
      const std::string length = piece(at, 8);
      const std::size_t count = little_endian<std::uint64_t>(length);
      require(checksum(at + 8) == length_sum(length), "checksum of a length");
      const std::string data = piece(at + 12, count);
      require(checksum(at + 12 + count) == length_sum(data), "checksum of data");
      events.push_back(event(data));
      at += 16 + count;
    }
    return events;
  }

 private:
  static void require(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
  }
  std::string piece(std::size_t at, std::size_t count) const {
    require(at <= bytes_.size() && count <= bytes_.size() - at, "whole records");
    return bytes_.substr(at, count);
  }
  template <class T>
  static T little_endian(const std::string& bytes) {
    require(bytes.size() == sizeof(T), "a number");
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::uint32_t checksum(std::size_t at) const { return little_endian<std::uint32_t>(piece(at, 4)); }
  static std::uint32_t length_sum(const std::string& bytes) {
    const std::uint32_t crc = crc32c_by_bits(bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
  }

  // A message as its fields: the number, and the value's bytes (of a varint, eight).
  static std::vector<std::pair<int, std::string>> fields(const std::string& message) {
    std::vector<std::pair<int, std::string>> all;
    std::size_t at = 0;
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        require(at < message.size() && shift < 64, "a varint");
        const auto byte = static_cast<unsigned char>(message[at++]);
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < message.size()) {
      const std::uint64_t key = varint();
      std::string value;
      if ((key & 7) == 0) {
        const std::uint64_t number = varint();
        value.assign(reinterpret_cast<const char*>(&number), sizeof number);
      } else {
        const std::size_t count = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : (key & 7) == 2 ? varint() : message.size();
        require(count <= message.size() - at, "a field");
        value = message.substr(at, count);
        at += count;
      }
      all.emplace_back(static_cast<int>(key >> 3), value);
    }
    return all;
  }

  static ReadEvent event(const std::string& message) {
    ReadEvent event;
    for (const auto& [number, value] : fields(message)) {
      if (number == 1) event.time = little_endian<double>(value);
      if (number == 2) event.step = little_endian<std::int64_t>(value);
      if (number == 3) event.version = value;
      if (number == 7)
        for (const auto& [inner, status] : fields(value))
          if (inner == 1) event.status = static_cast<int>(little_endian<std::int64_t>(status));
      if (number != 5) continue;
      for (const auto& [one, scalar] : fields(value)) {
        require(one == 1, "a summary of values");
        std::string tag;
        for (const auto& [inner, content] : fields(scalar)) {
          if (inner == 1) tag = content;
          if (inner == 2) event.scalars[tag] = little_endian<float>(content);
        }
      }
    }
    return event;
  }

  std::string bytes_;
};

// The event files of a folder, in the order TensorBoard reads them.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace lockstep::tests
