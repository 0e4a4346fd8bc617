// Bytes as tokens: nothing is lost, and a terminal never sees half a character.
#include "data/byte_tokenizer.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace lockstep {
namespace {

TEST(ByteTokenizer, GivesEveryByteItsOwnId) {
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  const std::vector<std::int32_t> ids = encode_bytes(text);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(encode_bytes("").empty());
}

TEST(ByteTokenizer, SkipsWhatIsNoByte) {
  const std::vector<std::int32_t> ids = {'a', kEndOfDocument, 'b', -1, 1000000, 'c'};
  Utf8Stream stream;
  EXPECT_EQ(stream.push(ids) + stream.finish(), "abc");
}

std::string streamed(std::string_view text) {
  Utf8Stream stream;
  std::string out;
  for (const std::int32_t id : encode_bytes(text)) out += stream.push(id);
  return out + stream.finish();
}

TEST(Utf8Stream, HoldsBackHalfACharacter) {
  Utf8Stream stream;
  std::vector<std::string> pieces;
  for (const std::int32_t id : encode_bytes("aé€😀")) pieces.push_back(stream.push(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "é", "", "", "€", "", "", "", "😀"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, AnUnfinishedCharacterBecomesAReplacementAtTheEnd) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push('x'), "x") << "and the stream goes on";
}

TEST(Utf8Stream, ReplacesWhatCanNeverBecomeACharacter) {
  EXPECT_EQ(streamed("\xC3(x"), "\uFFFD(x") << "the byte that broke it is not lost";
  EXPECT_EQ(streamed("\x80z"), "\uFFFDz") << "a continuation of nothing";
  EXPECT_EQ(streamed("\xC0\xAF"), "\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(streamed("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(streamed("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD") << "a surrogate";
  EXPECT_EQ(streamed("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "beyond U+10FFFF";
  EXPECT_EQ(streamed("\xE2\x82\xE2\x82\xAC"), "\uFFFD€") << "a new character may begin at once";
}

// Strict, written apart from the stream's own rules: by code point.
bool valid_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return false;
    std::uint32_t point = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3Fu);
    }
    const std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
    i += length;
  }
  return true;
}

TEST(Utf8Stream, EveryPieceOfAnyBytesIsValid) {
  // Mostly leads and continuations, so that characters begin, end and break often.
  constexpr unsigned char kLikely[] = {0x41, 0xC3, 0xA9, 0xE0, 0x9F, 0xA0, 0xED, 0xF0, 0x90, 0x8F, 0xF4, 0xBF};
  Utf8Stream stream;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const Philox4 r = philox(1, i);
    const std::string piece = stream.push(r[0] % 4 == 0 ? static_cast<int>(r[1] % 257) : kLikely[r[1] % 12]);
    ASSERT_TRUE(valid_utf8(piece)) << i;
    if (r[2] % 64 == 0) {
      ASSERT_TRUE(valid_utf8(stream.finish())) << i;
    }
  }
}

TEST(Utf8Stream, LeavesEveryValidCharacterAlone) {
  for (std::uint32_t point = 1; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text;
    const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
    if (point < 0x80) {
      text += static_cast<char>(point);
    } else if (point < 0x800) {
      text += static_cast<char>(0xC0 | point >> 6), tail(0);
    } else if (point < 0x10000) {
      text += static_cast<char>(0xE0 | point >> 12), tail(6), tail(0);
    } else {
      text += static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0);
    }
    ASSERT_EQ(streamed(text), text) << point;
  }
}

}  // namespace
}  // namespace lockstep
