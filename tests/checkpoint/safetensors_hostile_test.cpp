// Headers that lie: each is refused in one line that says where and why, at no great cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors_bytes.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::HasSubstr;

struct Lie {
  const char* name;
  std::string file;
  const char* reason;  // with the byte, where that is the point
};
std::ostream& operator<<(std::ostream& out, const Lie& lie) { return out << lie.name; }

// One entry "x" with this text inside.
std::string entry(const std::string& inside, std::size_t data_bytes) {
  return file_of(R"({"x":{)" + inside + "}}", data_bytes);
}
std::string sized(std::uint64_t length) {
  std::string bytes = file_of("{}", 0);
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}
std::string two(const std::string& a, const std::string& b, std::size_t data_bytes) {
  return file_of(R"({"a":{"dtype":"U8",)" + a + R"(},"b":{"dtype":"U8",)" + b + "}}", data_bytes);
}

const Lie kLies[] = {
    {"Empty", "", "byte 0: the file ends"},
    {"SevenBytes", "1234567", "byte 7: the file ends"},
    {"LengthZero", sized(0), "byte 0: the header's length is 0"},
    {"LengthPastTheEnd", sized(3), "byte 0: the header's length is 3, but only 2 bytes follow"},
    {"LengthAboveTheLimit", sized(100'000'001), "byte 0: the header's length is 100000001, above"},
    {"LengthOfAllOnes", sized(~std::uint64_t{0}), "byte 0: the header's length is 18446744073709551615"},
    {"NoBrace", file_of("[]", 0), "byte 8: the header does not start with '{'"},
    {"LeadingBlank", file_of(" {}", 0), "byte 8: the header does not start with '{'"},
    {"ByteOrderMark", file_of("\xEF\xBB\xBF{}", 0), "byte 8: the header does not start with '{'"},
    {"NotJson", file_of("{]", 0), "byte 9: the header is not valid JSON"},
    {"JsonCutShort", file_of("{\"x\":{", 0), "byte 13: the header is not valid JSON"},
    {"TwoDocuments", file_of("{}{}", 0), "byte 10: the header is not valid JSON"},
    {"Comment", file_of("{/**/}", 0), "the header is not valid JSON"},
    {"NotUtf8", file_of("{\"\xC3\x28\":1}", 0), "byte 11: the header is not valid JSON"},
    {"ZeroByteAfterTheObject", file_of(std::string("{}\0{", 4), 0), "byte 10: the header has a zero byte"},
    {"TensorTwice",
     two(R"("shape":[1],"data_offsets":[0,1])",
         R"("shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[2,3])", 3),
     "byte 115: tensor 'a' comes twice"},
    {"EscapedNameTwice",
     file_of(
         R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
         0),
     "tensor 'a' comes twice"},
    {"FieldTwice", entry(R"("dtype":"U8","shape":[1],"dtype":"U8","data_offsets":[0,1])", 1),
     "tensor 'x' has dtype twice"},
    {"MetadataTwice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ comes twice"},
    {"MetadataKeyTwice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "metadata key 'k' comes twice"},
    {"MetadataNotObject", file_of(R"({"__metadata__":"pt"})", 0), "'__metadata__' is a string, not an object"},
    {"MetadataNumber", file_of(R"({"__metadata__":{"k":1}})", 0), "metadata 'k' is a number, not a string"},
    {"MetadataNull", file_of(R"({"__metadata__":{"k":null}})", 0), "metadata 'k' is null, not a string"},
    {"MetadataNested", file_of(R"({"__metadata__":{"k":{"l":"m"}}})", 0), "metadata 'k' is an object, not a string"},
    {"EntryNumber", file_of(R"({"x":1})", 0), "tensor 'x' is a number, not an object"},
    {"EntryArray", file_of(R"({"x":[]})", 0), "tensor 'x' is an array, not an object"},
    {"NoDType", entry(R"("shape":[1],"data_offsets":[0,1])", 1), "tensor 'x' has no dtype"},
    {"NoShape", entry(R"("dtype":"U8","data_offsets":[0,1])", 1), "tensor 'x' has no shape"},
    {"NoOffsets", entry(R"("dtype":"U8","shape":[1])", 1), "tensor 'x' has no data_offsets"},
    {"UnknownField", entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1])", 1),
     "has a field 'strides'"},
    {"UnknownDType", entry(R"("dtype":"F33","shape":[1],"data_offsets":[0,1])", 1), "has an unknown dtype 'F33'"},
    {"DTypeNumber", entry(R"("dtype":32,"shape":[1],"data_offsets":[0,1])", 1), "has a number in its dtype"},
    {"ShapeString", entry(R"("dtype":"U8","shape":"1","data_offsets":[0,1])", 1), "has a string in its shape"},
    {"ShapeNested", entry(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])", 1), "has an array in its shape"},
    {"ShapeNegative", entry(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
     "has a negative number in its shape"},
    {"ShapeFraction", entry(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", 1),
     "not a 64-bit integer in its shape"},
    {"ShapeHuge", entry(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])", 1),
     "does not fit 63 bits"},
    {"ShapeBeyondHuge", entry(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1])", 1),
     "not a 64-bit integer"},
    // 2^32 x 2^32 bytes is 0 in 64 bits: the wrapped product would match the offsets.
    {"ShapeWraps", entry(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
     "does not fit 63 bits"},
    {"ShapeWrapsBesideZero", entry(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])", 0),
     "does not fit 63 bits"},
    {"ShapeOf65Dims",
     entry(R"("dtype":"U8","data_offsets":[0,1],"shape":[1)" +
               [] {
                 std::string s;
                 for (int i = 0; i < 64; ++i) s += ",1";
                 return s;
               }() +
               "]",
           1),
     "more than 64 dims"},
    {"OneOffset", entry(R"("dtype":"U8","shape":[1],"data_offsets":[0])", 1), "needs two data_offsets"},
    {"ThreeOffsets", entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])", 1), "more than two data_offsets"},
    {"OffsetsBackwards", entry(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1),
     "data_offsets [1, 0), outside the 1 bytes"},
    {"OffsetsPastTheEnd", entry(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", 1),
     "data_offsets [0, 2), outside the 1 bytes"},
    {"OffsetsHuge", entry(R"("dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807])", 1),
     "outside the 1 bytes"},
    {"SizeMismatch", entry(R"("dtype":"U16","shape":[1],"data_offsets":[0,1])", 1),
     "has 1 bytes by its data_offsets, 2 by its shape"},
    {"Overlap", two(R"("shape":[3],"data_offsets":[0,3])", R"("shape":[2],"data_offsets":[2,4])", 4),
     "byte 115: tensors 'a' and 'b' overlap"},
    {"EmptyInsideAnother", two(R"("shape":[3],"data_offsets":[0,3])", R"("shape":[0],"data_offsets":[1,1])", 3),
     "'a' and 'b' overlap"},
    {"HoleAtTheStart", two(R"("shape":[1],"data_offsets":[1,2])", R"("shape":[1],"data_offsets":[2,3])", 3),
     "byte 113: 1 bytes before tensor 'a' belong to no"},
    {"HoleInTheMiddle", two(R"("shape":[1],"data_offsets":[0,1])", R"("shape":[1],"data_offsets":[3,4])", 4),
     "byte 114: 2 bytes before tensor 'b' belong to no"},
    {"TrailingBytes", entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", 3),
     "byte 62: the last 2 bytes of the file belong to no"},
    {"DataWithoutTensors", file_of("{}", 1), "byte 10: the last 1 bytes of the file belong to no"},
    // What a name holds must not break the line or flood it.
    {"NameWithNewline", file_of(R"({"a\nb":1})", 0), "tensor 'a\\x0ab' is a number"},
    {"NameOfAMillion", file_of("{\"" + std::string(1'000'000, 'n') + "\":1}", 0), "nnn...' is a number"},
};

class SafetensorsRefuses : public testing::TestWithParam<Lie> {};
TEST_P(SafetensorsRefuses, AFileThatLies) {
  EXPECT_THAT(refusal_to_parse(GetParam().file), HasSubstr(GetParam().reason));
}
INSTANTIATE_TEST_SUITE_P(Lies, SafetensorsRefuses, testing::ValuesIn(kLies),
                         [](const auto& info) { return std::string(info.param.name); });

const std::string kTwoTensors =
    file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},)"
            R"("a":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]}})",
            14);

TEST(SafetensorsHostile, EveryTruncationIsRefused) {
  ASSERT_EQ(refusal_to_parse(kTwoTensors), "");
  for (std::size_t length = 0; length < kTwoTensors.size(); ++length) {
    // A copy of its own length, so that a sanitizer sees one byte too many.
    const std::vector<char> cut(kTwoTensors.begin(), kTwoTensors.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_NE(refusal_to_parse(std::string_view(cut.data(), cut.size())), "") << length;
  }
}

// A flipped bit may still make a valid header (another name); it must never make an untrue one.
TEST(SafetensorsHostile, EveryFlippedHeaderBitIsRefusedOrHarmless) {
  int refused = 0, accepted = 0;
  for (std::size_t bit = 0; bit < (kTwoTensors.size() - 14) * 8; ++bit) {
    std::string bytes = kTwoTensors;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    if (refusal_to_parse(bytes).empty()) {
      ++accepted;
      const SafetensorsIndex index = parse_safetensors(std::as_bytes(std::span(bytes)), "flipped");
      ASSERT_FALSE(index.entries().empty());
      EXPECT_EQ(index.entries().front().begin, static_cast<std::int64_t>(kTwoTensors.size() - 14)) << bit;
      EXPECT_EQ(index.entries().back().end, static_cast<std::int64_t>(kTwoTensors.size())) << bit;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10 * accepted);
}

// The process's highest resident memory since it was last reset, in bytes; 0 where the system does not say.
std::int64_t peak_memory(bool reset) {
  if (reset) std::ofstream("/proc/self/clear_refs") << "5";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

TEST(SafetensorsHostile, AHeaderOf100MegabytesIsRefusedQuicklyInLittleMemory) {
  struct Flood {
    const char* name;
    std::string start;
    std::string piece;  // over and over
  };
  const Flood floods[] = {
      {"brackets", "", "["},
      {"nested brackets", R"({"x":{"shape":)", "["},
      {"nested objects", "", R"({"a":)"},
      {"one name", "{\"", "n"},
      {"one value", R"({"__metadata__":{"k":")", "v"},
      {"escapes", "{\"", "\\u0041"},
      {"blanks", "{", " "},
      {"newlines", "{", "\n"},
      {"digits", R"({"x":{"shape":[)", "1"},
      {"dims", R"({"x":{"shape":[1)", ",1"},
      {"zeros", "{", std::string(1, '\0')},
  };
  for (const Flood& flood : floods) {
    SCOPED_TRACE(flood.name);
    std::string file = file_of(flood.start, 0);
    const std::uint64_t length = kMaxHeaderBytes;
    std::memcpy(file.data(), &length, 8);
    file.reserve(8 + length);
    while (file.size() + flood.piece.size() <= 8 + length) file += flood.piece;
    file.resize(8 + length, ' ');

    const std::int64_t before = peak_memory(true);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_NE(refusal_to_parse(file), "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    EXPECT_LT(peak_memory(false) - before, std::int64_t{100} << 20);
  }
}

TEST(SafetensorsHostile, CountsAreBounded) {
  std::string metadata = R"({"__metadata__":{"k":"")";
  for (std::size_t i = 0; i < kMaxHeaderMetadata; ++i) metadata += fmt::format(R"(,"{}":"")", i);
  EXPECT_THAT(refusal_to_parse(file_of(metadata + "}}", 0)), HasSubstr("more than 65536 metadata keys"));
  std::string tensors = R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  for (std::size_t i = 0; i < kMaxHeaderTensors; ++i) {
    tensors += fmt::format(R"(,"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i);
  }
  EXPECT_THAT(refusal_to_parse(file_of(tensors + "}", 0)), HasSubstr("more than 1000000 tensors"));
}

}  // namespace
}  // namespace lockstep
