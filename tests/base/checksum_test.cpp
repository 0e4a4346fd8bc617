// Checksums are XXH3-64, in one piece or in many.
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace lockstep {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Checksum, IsThePublishedFunction) {
  EXPECT_EQ(checksum({}), 0x2D06800538D394C2ull);  // XXH3-64 of nothing, from the specification's test vectors
  EXPECT_EQ(Checksum().value(), 0x2D06800538D394C2ull);
}

TEST(Checksum, IsTheSameInPiecesOfAnySize) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 37 + i / 256);
  const std::uint64_t whole = checksum(bytes_of(text));
  for (const std::size_t piece : {1, 7, 64, 255, 256, 1023, 4999}) {
    Checksum sum;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      sum.update(bytes_of(std::string_view(text).substr(at, piece)));
      sum.update({});
    }
    EXPECT_EQ(sum.value(), whole) << piece;
  }
  Checksum sum;
  sum.update(bytes_of("abc"));
  EXPECT_EQ(sum.value(), checksum(bytes_of("abc")));
  sum.update(bytes_of("d"));
  EXPECT_EQ(sum.value(), checksum(bytes_of("abcd"))) << "asking changes nothing";
}

TEST(Checksum, ChangesWithAnyByte) {
  std::string text(300, 'x');
  const std::uint64_t whole = checksum(bytes_of(text));
  for (char& c : text) {
    c ^= 1;
    EXPECT_NE(checksum(bytes_of(text)), whole);
    c ^= 1;
  }
}

}  // namespace
}  // namespace lockstep
