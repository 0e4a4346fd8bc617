// JSON lines, text and compressed files that want to break `lockstep tokenize`, and questions and prompts that want to
// break `eval` and `generate`.
#include <gtest/gtest.h>

#include "data/compressed_bytes.h"
#include "support/hostile_input.h"

namespace lockstep::tests {
namespace {

std::function<std::string()> bytes(const char* content, std::size_t size) { return text({content, size}); }
#define BYTES(literal) bytes(literal, sizeof(literal) - 1)

const std::string kLine = "{\"text\":\"a\"}\n";
const std::string kMember = gzip_member(kLine), kFrame = zstd_frame(kLine);

std::string with_byte(std::string all, std::size_t at, char byte) {
  all[at] = byte;
  return all;
}
// gzip data of one byte again and again, by deflate's blocks of fixed codes: 258 bytes for 13 bits.
std::string gzip_bomb(std::size_t matches) {
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  unsigned held = 0, bits = 0;
  const auto put = [&](unsigned value, unsigned count) {  // the lowest bit first
    for (unsigned i = 0; i < count; ++i) {
      held |= (value >> i & 1) << bits;
      if (++bits == 8) out += static_cast<char>(held), held = bits = 0;
    }
  };
  const auto code = [&](unsigned value, unsigned count) {  // Huffman codes: the highest bit first
    for (unsigned i = count; i-- > 0;) put(value >> i & 1, 1);
  };
  put(1, 1), put(1, 2);                                                 // the last block, fixed codes
  code(0x30 + 'a', 8);                                                  // an 'a'
  for (std::size_t i = 0; i < matches; ++i) code(0xC5, 8), code(0, 5);  // 258 bytes from one byte before
  code(0, 7);
  put(0, 7);
  return out + std::string(8, '\0');
}
// A frame that skips `size` bytes.
std::string skippable(std::uint32_t size, const std::string& content) {
  std::string out = "\x50\x2a\x4d\x18";
  put_little(out, size, 4);
  return out + content;
}

const HostileInput kLines[] = {
    {"Folder", "a.jsonl", text(kAFolder), "no file in it"},
    {"Pipe", "a.jsonl", text(kAPipe), "not a regular file"},
    {"Missing", "a.jsonl", text(kNoFile), "no such file"},
    {"Hole", "a.jsonl", text(kAHole), "longer than 4 MiB"},
    {"NoNewlineForever", "a.jsonl", [] { return std::string(20'000'000, ' '); }, "longer than 4 MiB"},
    {"Zeros", "a.jsonl", text(std::string(100, '\0')), ":1: is not JSON at byte 1"},
    {"ByteOrderMarkTwice", "a.jsonl", text("\xEF\xBB\xBF\xEF\xBB\xBF{\"text\":\"a\"}\n"), ":1: is not JSON"},
    {"ByteOrderMarkInTheMiddle", "a.jsonl", text(kLine + "\xEF\xBB\xBF" + kLine), ":2: is not JSON"},
    {"OnlyCarriageReturns", "a.jsonl", text("{\"text\":\"a\"}\r{\"text\":\"b\"}\r"), ":1: is not JSON"},
    {"DeepList", "a.jsonl", [] { return "{\"a\":" + std::string(3'000'000, '['); }, "nest too deep"},
    {"DeepObject", "a.jsonl", [] { return times("{\"a\":", 500'000); }, "nest too deep"},
    {"DeepAndClosed", "a.jsonl", [] { return "{\"a\":" + times("[", 600) + times("]", 600) + ",\"text\":\"a\"}"; },
     "nest too deep"},
    {"TheKeyIsInside", "a.jsonl", text("{\"a\":{\"text\":\"b\"}}"), "has no key 'text'"},
    {"TheKeyIsEscapedTwice", "a.jsonl", text(R"({"text":"a","\u0074ext":"b"})"), "has the key 'text' twice"},
    {"AMillionKeys", "a.jsonl", [] { return "{" + times("\"a\":0,", 500'000) + "\"b\":0}"; }, "has no key 'text'"},
    {"TheKeyAMillionTimes", "a.jsonl", [] { return "{" + times("\"text\":\"a\",", 300'000) + "\"b\":0}"; }, "twice"},
    {"TheSecondOfTwoIsNoText", "a.jsonl", text(R"({"text":"a","text":1})"), "twice"},
    {"HalfASurrogate", "a.jsonl", text(R"({"text":"\udfff"})"), "half of a surrogate"},
    {"HalvesInTheWrongOrder", "a.jsonl", text(R"({"text":"\udc00\ud800"})"), "half of a surrogate"},
    {"HalfASurrogateInAnotherKey", "a.jsonl", text(R"({"b":"\ud800","text":"a"})"), "half of a surrogate"},
    {"HalfASurrogateAtTheEnd", "a.jsonl", text(R"({"text":"\ud83d)"), "half of a surrogate"},
    {"InvalidUtf8InAnotherKey", "a.jsonl", BYTES("{\"\xff\":1,\"text\":\"a\"}"), "not UTF-8"},
    {"CutCharacter", "a.jsonl", BYTES("{\"text\":\"\xf0\x9f\x98\"}"), "not UTF-8"},
    {"FiveByteCharacter", "a.jsonl", BYTES("{\"text\":\"\xf8\x88\x80\x80\x80\"}"), "not UTF-8"},
    {"ZeroInText", "a.jsonl", BYTES("{\"text\":\"a\0b\"}"), "not escaped"},
    {"EscapeCharacter", "a.jsonl", text("{\"text\":\"\x1b[2J\"}"), "not escaped"},
    {"NewlineInText", "a.jsonl", text("{\"text\":\"a\nb\"}\n"), ":1: is not JSON"},
    {"DigitsForever", "a.jsonl", [] { return "{\"text\":" + std::string(3'000'000, '9') + "}"; }, "is no text"},
    {"TwoMinus", "a.jsonl", text(R"({"n":--1,"text":"a"})"), "is not JSON at byte"},
    {"Infinity", "a.jsonl", text(R"({"n":-Infinity,"text":"a"})"), "is not JSON at byte"},
    {"TheLastOfManyLines", "a.jsonl", [] { return times(kLine, 100'000) + "{"; }, ":100001: is not JSON"},
    {"NothingButBlankLines", "a.jsonl", [] { return times(" \t\r\n", 500'000); }, "there is no text in it"},
    {"NothingButEmptyTexts", "a.jsonl", [] { return times("{\"text\":\"\"}\n", 100'000); }, "there is no text in it"},
    {"BinaryText", "a.txt", BYTES("text\0text"), "is binary"},
    {"HoleAsText", "a.txt", text(kAHole), "longer than 4 MiB"},
    {"GzipBombOfLines", "a.jsonl.gz", [] { return gzip_bomb(2'000'000); }, "longer than 4 MiB"},
    {"GzipBombOfText", "a.txt.gz", [] { return gzip_bomb(2'000'000); }, "longer than 4 MiB"},
    {"GzipBombOfMembers", "a.txt.gz", [] { return times(gzip_member(std::string(50'000, 'a')), 400); },
     "longer than 4 MiB"},
    {"GzipOfNothingTimesAMillion", "a.jsonl.gz", [] { return times(gzip_member(""), 200'000); },
     "there is no text in it"},
    {"GzipEmpty", "a.jsonl.gz", text(""), "there is no text in it"},
    {"GzipOneByte", "a.jsonl.gz", text("\x1f"), "ends in the middle"},
    {"GzipCutInItsHeader", "a.jsonl.gz", [] { return kMember.substr(0, 7); }, "ends in the middle"},
    {"GzipCutInItsSum", "a.jsonl.gz", [] { return kMember.substr(0, kMember.size() - 5); }, "ends in the middle"},
    {"GzipWrongSum", "a.jsonl.gz", [] { return with_byte(kMember, kMember.size() - 8, '\x55'); }, "damaged"},
    {"GzipWrongLength", "a.jsonl.gz", [] { return with_byte(kMember, kMember.size() - 1, '\x55'); }, "damaged"},
    {"GzipWrongSumOfTheSecond", "a.jsonl.gz", [] { return kMember + with_byte(kMember, kMember.size() - 8, '\x55'); },
     "damaged"},
    {"GzipReservedFlags", "a.jsonl.gz", [] { return with_byte(kMember, 3, '\xe0'); }, "damaged"},
    {"GzipNameWithoutEnd", "a.jsonl.gz",
     [] { return with_byte(kMember.substr(0, 10), 3, '\x08') + std::string(5'000'000, 'n'); }, "ends in the middle"},
    {"GzipStoredLengthLies", "a.jsonl.gz", [] { return with_byte(kMember, 11, '\x7f'); }, "damaged"},
    {"GzipRubbishAfter", "a.jsonl.gz", [] { return kMember + "rubbish"; }, "damaged"},
    {"GzipIsZstd", "a.jsonl.gz", [] { return kFrame; }, "not gzip"},
    {"GzipIsText", "a.jsonl.gz", text(kLine), "not gzip"},
    {"GzipOfGzip", "a.jsonl.gz", [] { return gzip_member(kMember); }, ":1: is not JSON"},
    {"GzipHole", "a.jsonl.gz", text(kAHole), "not gzip"},
    {"ZstdBombOfLines", "a.jsonl.zst", [] { return zstd_bomb('a', 4000); }, "longer than 4 MiB"},
    {"ZstdBombOfText", "a.txt.zst", [] { return zstd_bomb('a', 4000); }, "longer than 4 MiB"},
    {"ZstdBombOfFrames", "a.txt.zst", [] { return times(zstd_bomb('a', 1), 400); }, "longer than 4 MiB"},
    {"ZstdWindowOfTwoGiB", "a.jsonl.zst", [] { return zstd_frame(kLine, 31); }, "damaged"},
    {"ZstdWindowOf256MiB", "a.jsonl.zst", [] { return zstd_frame(kLine, 28); }, "damaged"},
    {"ZstdWidestWindowCut", "a.jsonl.zst", [] { return zstd_frame(std::string(300'000, ' '), 27).substr(0, 200'000); },
     "ends in the middle"},
    {"ZstdSaysTerabytes", "a.jsonl.zst",
     BYTES("\x28\xb5\x2f\xfd\xc0\x38\xff\xff\xff\xff\xff\xff\xff\x7f\x69\0\0{\"text\":\"a\"}\n"), "damaged"},
    {"ZstdUnknownDictionary", "a.jsonl.zst",
     BYTES("\x28\xb5\x2f\xfd\x03\x38\x01\x02\x03\x04\x69\0\0{\"text\":\"a\"}\n"), "damaged"},
    {"ZstdReservedBit", "a.jsonl.zst", [] { return with_byte(kFrame, 4, '\x08'); }, "damaged"},
    {"ZstdReservedBlock", "a.jsonl.zst", [] { return with_byte(kFrame, 6, '\x6f'); }, "damaged"},
    {"ZstdCutInItsHeader", "a.jsonl.zst", [] { return kFrame.substr(0, 5); }, "ends in the middle"},
    {"ZstdSkipsFourGiB", "a.jsonl.zst", [] { return skippable(0xFFFFFFFFu, std::string(100'000, 'x')); },
     "ends in the middle"},
    {"ZstdOnlySkips", "a.jsonl.zst", [] { return times(skippable(0, ""), 500'000); }, "there is no text in it"},
    {"ZstdRubbishAfter", "a.jsonl.zst", [] { return kFrame + "rubbish rubbish"; }, "damaged"},
    {"ZstdIsGzip", "a.jsonl.zst", [] { return kMember; }, "not zstd"},
    {"ZstdHole", "a.jsonl.zst", text(kAHole), "not zstd"},
    {"ZstdEmpty", "a.jsonl.zst", text(""), "there is no text in it"},
};
static_assert(std::size(kLines) >= 71);

class HostileLines : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileLines, AreRefusedInOneLine) {
  const HostileFolder folder(GetParam());
  std::vector<std::string> words = {"tokenize", GetParam().file, "--longest", "4", "--out", "out.tokens"};
  if (GetParam().file.find(".jsonl") != std::string::npos) words.insert(words.end(), {"--key", "text"});
  folder.expect_refused(words);
}
INSTANTIATE_TEST_SUITE_P(Files, HostileLines, testing::ValuesIn(kLines), kNameOfInput);

}  // namespace
}  // namespace lockstep::tests
