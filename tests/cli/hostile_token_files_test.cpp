// Token files, indexes and mixtures that want to break `lockstep data inspect` and `lockstep plan`.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "base/checksum.h"
#include "data/foreign_bytes.h"
#include "data/token_file_writer.h"
#include "support/hostile_input.h"

namespace lockstep::tests {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max(), kHalf = std::uint64_t{1} << 63;

template <class Number>
std::string with(std::string bytes, std::size_t at, Number value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}
std::uint64_t sum_of(std::string_view bytes) { return checksum(std::as_bytes(std::span(bytes))); }

// Lockstep's own: documents of 3, 1 and 2 ids below 300, with both checksums made right after a change.
std::string own_file() {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder / "x", 300);
  for (const std::vector<std::int32_t>& document : {std::vector<std::int32_t>{1, 2, 299}, {4}, {5, 6}})
    writer.add(document);
  writer.finish();
  std::ifstream in(folder / "x", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string sealed(std::string bytes) {
  bytes = with(std::move(bytes), 40, sum_of(std::string_view(bytes).substr(64)));
  return with(std::move(bytes), 56, sum_of(std::string_view(bytes).substr(0, 56)));
}
template <class Number>
std::function<std::string()> own(std::size_t at, Number value) {
  return [=] { return sealed(with(own_file(), at, value)); };
}

// Megatron-LM's: two sequences of 2 and 3 ids in two documents, the .bin of 10 bytes beside it.
constexpr std::size_t kVersion = 9, kType = 17, kSequences = 18, kStarts = 26, kLengths = 34, kPointers = 42,
                      kDocuments = 58;
std::string idx() { return MegatronText{.lengths = {2, 3}, .pointers = {}, .documents = {0, 1, 2}}.idx(); }
template <class Number>
std::function<std::string()> idx_with(std::size_t at, Number value) {
  return [=] { return with(idx(), at, value); };
}

const HostileInput kTokenFiles[] = {
    {"Folder", "x.tokens", text(kAFolder), "is a folder"},
    {"Pipe", "x.tokens", text(kAPipe), "not a regular file"},
    {"Hole", "x.tokens", text(kAHole), "not a token file"},
    {"Empty", "x.tokens", text(""), "inside the header"},
    {"OneByte", "x.tokens", text("L"), "inside the header"},
    {"CutInTheTokens", "x.tokens", [] { return own_file().substr(0, 70); }, "do not fit"},
    {"CutInTheIndex", "x.tokens", [] { return own_file().substr(0, 150); }, "x.tokens"},
    {"Longer", "x.tokens", [] { return own_file() + '\0'; }, "has 153 bytes"},
    {"HeaderOfTheFuture", "x.tokens", own(8, std::uint32_t{3}), "of version 3"},
    {"WidthOfThree", "x.tokens", own(12, std::uint32_t{3}), "bytes per token"},
    {"WidthOfFourGiB", "x.tokens", own(12, ~std::uint32_t{0}), "bytes per token"},
    {"VocabularyOfNothing", "x.tokens", own(16, std::uint64_t{0}), "a vocabulary of 0"},
    {"VocabularyOf64Bits", "x.tokens", own(16, kAll), "a vocabulary of"},
    {"TokensOf64Bits", "x.tokens", own(24, kAll), "do not fit"},
    {"TokensThatOverflow", "x.tokens", own(24, kHalf + 6), "do not fit"},
    {"DocumentsThatOverflow", "x.tokens", own(32, kHalf / 4 + 3), "do not fit"},
    {"MoreDocumentsThanTokens", "x.tokens", own(32, std::uint64_t{7}), "7 documents"},
    {"ReservedBytes", "x.tokens", own(48, std::uint64_t{1}), "not zero"},
    {"PaddingIsNotZero", "x.tokens", own(80, '\1'), "not zero"},
    {"FirstDocumentIsNotFirst", "x.tokens", own(128, std::uint64_t{1}), "document 0 begins at"},
    {"DocumentsOutOfOrder", "x.tokens", own(144, std::uint64_t{2}), "document 1 is tokens"},
    {"DocumentBeyond", "x.tokens", own(144, kAll), "document 1 is tokens"},
    {"EmptyDocument", "x.tokens", own(144, std::uint64_t{3}), "document 1 is tokens"},
    {"IdBeyondTheVocabulary", "x.tokens", own(72, std::uint16_t{300}), "token 4 has id 300"},
    {"TokensDamaged", "x.tokens", [] { return with(own_file(), 64, '\7'); }, "is damaged"},
    {"HeaderDamaged", "x.tokens", [] { return with(own_file(), 24, '\7'); }, "the header is damaged"},

    {"IdxFolder", "x.idx", text(kAFolder), "is a folder"},
    {"IdxPipe", "x.idx", text(kAPipe), "not a regular file"},
    {"IdxHole", "x.idx", text(kAHole), "not the index"},
    {"IdxEmpty", "x.idx", text(""), "not the index"},
    {"IdxHalfItsMagic", "x.idx", text("MMID"), "inside the header"},
    {"IdxWrongMagic", "x.idx", idx_with(0, 'X'), "not the index"},
    {"IdxOldMagic", "x.idx", text("TNTIDX\0\0" + std::string(100, '\0')), "not the index"},
    {"IdxVersionZero", "x.idx", idx_with(kVersion, std::uint64_t{0}), "version 0"},
    {"IdxVersionOf64Bits", "x.idx", idx_with(kVersion, kAll), "version 18446744073709551615"},
    {"IdxTypeZero", "x.idx", idx_with(kType, '\0'), "type 0"},
    {"IdxTypeOfFloats", "x.idx", idx_with(kType, '\6'), "floating-point"},
    {"IdxTypeOf255", "x.idx", idx_with(kType, '\xff'), "type 255"},
    {"IdxWiderType", "x.idx", idx_with(kType, '\5'), "x.idx"},
    {"IdxSequencesOf64Bits", "x.idx", idx_with(kSequences, kAll), "too few"},
    {"IdxSequencesThatOverflow", "x.idx", idx_with(kSequences, kAll / 12 + 2), "too few"},
    {"IdxSequencesThatOverflowBy20", "x.idx", idx_with(kSequences, kAll / 20 + 1), "too few"},
    {"IdxStartsOf64Bits", "x.idx", idx_with(kStarts, kAll), "too few"},
    {"IdxStartsThatOverflow", "x.idx", idx_with(kStarts, kHalf / 4 + 3), "too few"},
    {"IdxSumThatOverflows", "x.idx", [] { return with(with(idx(), kSequences, kAll / 16), kStarts, kAll / 16); },
     "too few"},
    {"IdxNoStarts", "x.idx", [] { return with(idx().substr(0, kDocuments), kStarts, std::uint64_t{0}); },
     "no document index"},
    {"IdxNegativeLength", "x.idx", idx_with(kLengths, std::int32_t{-1}), "sequence 0 has -1 ids"},
    {"IdxLongestLength", "x.idx", idx_with(kLengths, std::numeric_limits<std::int32_t>::max()),
     "sequence 0 ends after"},
    {"IdxNegativePointer", "x.idx", idx_with(kPointers + 8, std::int64_t{-4}), "sequence 1 begins at byte -4"},
    {"IdxPointerOf63Bits", "x.idx", idx_with(kPointers + 8, std::numeric_limits<std::int64_t>::max()),
     "sequence 1 begins"},
    {"IdxPointersOverlap", "x.idx", idx_with(kPointers + 8, std::int64_t{2}), "sequence 1 begins at byte 2"},
    {"IdxPointersSwapped", "x.idx",
     [] { return with(with(idx(), kPointers, std::int64_t{4}), kPointers + 8, std::int64_t{0}); },
     "sequence 0 begins at byte 4"},
    {"IdxPointerBetweenIds", "x.idx", idx_with(kPointers + 8, std::int64_t{3}), "sequence 1 begins at byte 3"},
    {"IdxDocumentsOutOfOrder", "x.idx", idx_with(kDocuments + 8, std::int64_t{3}), "document 1 begins"},
    {"IdxNegativeDocument", "x.idx", idx_with(kDocuments + 8, std::int64_t{-1}), "document 1 begins"},
    {"IdxLastDocumentEarly", "x.idx", idx_with(kDocuments + 16, std::int64_t{1}), "document 2 begins"},
    {"IdxCutInItsLengths", "x.idx", [] { return idx().substr(0, kLengths + 3); }, "too few"},
    {"IdxOneByteMore", "x.idx", [] { return idx() + 'x'; }, "after its last section"},
    {"IdxBinTooShort", "x.idx",
     [] {
       return MegatronText{.lengths = {2, 4}, .pointers = {}, .documents = {0, 2}}.idx();
     },
     "ends after the .bin"},
    {"IdxBinTooLong", "x.idx",
     [] {
       return MegatronText{.lengths = {2, 2}, .pointers = {}, .documents = {0, 2}}.idx();
     },
     "8 bytes of ids"},
    {"BinIsAHole", "x.bin", text(kAHole), "of 10 bytes of ids", 4, "x.idx"},
    {"BinIsAFolder", "x.bin", text(kAFolder), "is a folder"},
    {"BinIsAPipe", "x.bin", text(kAPipe), "not a regular file"},
    {"BinIsMissing", "x.bin", text(kNoFile), "there is no"},
    {"BinHasNegativeIds", "x.bin",
     [] {
       return ids_of<std::int32_t>({1, -1});
     },
     "token 1 has id -1"},

    {"LlmcOnlyItsMagic", "y.bin", [] { return llmc_bytes(20240520, 1, 1, "").substr(0, 4); }, "version 0"},
    {"LlmcCountOf32Bits", "y.bin", [] { return llmc_bytes(20240520, 1, ~0u, "ab"); }, "its header says 4294967295"},
    {"LlmcCountOfNothing", "y.bin", [] { return llmc_bytes(20240520, 1, 0, "ab"); }, "its header says 0"},
    {"LlmcOddBytes", "y.bin", [] { return llmc_bytes(20240801, 7, 1, "abc"); }, "no multiple of 4"},
    {"LlmcIdBeyond31Bits", "y.bin", [] { return llmc_bytes(20240801, 7, 1, ids_of<std::uint32_t>({0xFFFFFFFF})); },
     "token 0 has id"},
    {"LlmcVersion", "y.bin", [] { return llmc_bytes(20240801, ~0u, 1, "abcd"); }, "version 4294967295"},
    {"IdsWithoutAType", "y.bin",
     [] {
       return ids_of<std::uint16_t>({1, 2});
     },
     "does not say what it holds"},
};
static_assert(std::size(kTokenFiles) >= 72);

class HostileTokenFiles : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileTokenFiles, AreRefusedInOneLine) {
  const HostileInput& input = GetParam();
  const HostileFolder folder(input);
  if (input.file == "x.idx") folder.write("x.bin", ids_of<std::uint16_t>({1, 2, 3, 4, 5}));
  if (input.file == "x.bin")
    folder.write("x.idx",
                 input.name == "BinHasNegativeIds"
                     ? MegatronText{.type = 4, .lengths = {2}, .pointers = {}, .documents = {0, 1}, .width = 4}.idx()
                     : idx());
  folder.expect_refused({"data", "inspect", input.file == "x.bin" ? "x.idx" : input.file});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileTokenFiles, testing::ValuesIn(kTokenFiles), kNameOfInput);

// The index of packed documents that the program keeps beside a token file.
constexpr const char* kRun =
    "[model]\nfamily = \"llama\"\nvocabulary = 300\nlayers = 1\nwidth = 32\nheads = 4\nkv_heads = 2\nffn_width = 64\n"
    "max_positions = 64\n[data]\ntokens = \"x.tokens\"\nseq = 16\ndocuments = \"packed\"\neval_share = 0\n[train]\n"
    "steps = 1\nglobal_batch = 1\neval_every = 0\n[run]\nthreads = 1\n";
constexpr const char* kIndex = "x.tokens.packed-16-0.index";

const std::string& index_bytes() {
  static const std::string bytes = [] {
    const TemporaryFolder folder;
    std::ofstream(folder / "x.tokens", std::ios::binary) << own_file();
    std::ofstream(folder / "x.toml") << kRun;
    const Outcome o = run_program({"plan", "x.toml"}, folder.path());
    EXPECT_EQ(o.code, 0) << o.err;
    std::ifstream in(folder / kIndex, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  }();
  return bytes;
}
std::string sealed_index(std::string bytes) {
  bytes = with(std::move(bytes), 72, sum_of(std::string_view(bytes).substr(128)));
  return with(std::move(bytes), 120, sum_of(std::string_view(bytes).substr(0, 120)));
}
// One sample of three pieces: its first piece and the end, then their tokens, then their lengths.
constexpr std::size_t kFirsts = 128, kTokens = 144, kCounts = 168;
template <class Number>
std::function<std::string()> index_with(std::size_t at, Number value) {
  return [=] { return sealed_index(with(index_bytes(), at, value)); };
}

const HostileInput kIndexes[] = {
    {"Folder", kIndex, text(kAFolder), "is a folder"},
    {"Pipe", kIndex, text(kAPipe), "not a regular file"},
    {"Hole", kIndex, text(kAHole), "not a document index"},
    {"Empty", kIndex, text(""), "not a document index"},
    {"Cut", kIndex, [] { return index_bytes().substr(0, 127); }, "inside the header"},
    {"CutInItsPieces", kIndex, [] { return index_bytes().substr(0, 150); }, "bytes"},
    {"Longer", kIndex, [] { return index_bytes() + '\0'; }, "but its header says"},
    {"Version", kIndex, index_with(8, std::uint32_t{9}), "version 9"},
    {"Reserved", kIndex, index_with(12, std::uint32_t{1}), "not all zero"},
    {"SequenceOf64Bits", kIndex, index_with(24, kAll), "do not fit"},
    {"SamplesOf64Bits", kIndex, index_with(40, kAll), "do not fit"},
    {"SamplesThatOverflow", kIndex, index_with(40, kHalf - 1), "do not fit"},
    {"NoSamples", kIndex, index_with(40, std::uint64_t{0}), "no samples"},
    {"PiecesThatOverflow", kIndex, index_with(56, kHalf / 6), "do not fit"},
    {"FirstPieceIsNotFirst", kIndex, index_with(kFirsts, std::uint64_t{1}), "all pieces"},
    {"PiecesBeyond", kIndex, index_with(kFirsts + 8, kAll), "all pieces"},
    {"PieceBeyondTheTokens", kIndex, index_with(kTokens, std::int64_t{4}), "piece 0 of sample 0"},
    {"PieceOf63Bits", kIndex, index_with(kTokens, std::numeric_limits<std::int64_t>::max()), "piece 0 of sample 0"},
    {"NegativePiece", kIndex, index_with(kTokens, std::int64_t{-1}), "piece 0 of sample 0"},
    {"EmptyPiece", kIndex, index_with(kCounts, std::uint32_t{0}), "piece 0 of sample 0"},
    {"PieceTooLong", kIndex, index_with(kCounts, std::uint32_t{0x7FFFFFFF}), "piece 0 of sample 0"},
    {"PieceContinuesBeyond", kIndex, index_with(kCounts + 8, std::uint32_t{0x80000002}), "piece"},
    {"SamplesDamaged", kIndex, [] { return with(index_bytes(), kTokens, '\7'); }, "is damaged"},
};
static_assert(std::size(kIndexes) >= 23);

class HostileIndexes : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileIndexes, AreRefusedInOneLine) {
  ASSERT_EQ(index_bytes().size(), kCounts + 12);
  const HostileFolder folder(GetParam());
  folder.write("x.tokens", own_file());
  folder.write("x.toml", kRun);
  folder.expect_refused({"plan", "x.toml"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileIndexes, testing::ValuesIn(kIndexes), kNameOfInput);

// Run files whose mixtures are out of any measure.
std::function<std::string()> mixture(const std::string& sources) {
  const std::string run = kRun;
  const std::size_t from = run.find("tokens = "), to = run.find("seq = ");
  const std::string all = run.substr(0, from) + run.substr(to);
  return [=] { return all + sources; };
}
std::string source(const std::string& name, const std::string& more) {
  return "[data.source." + name + "]\ntokens = \"x.tokens\"\n" + more + "\n";
}
const HostileInput kMixtures[] = {
    {"ManySources", "x.toml",
     [] {
       std::string all;
       for (int i = 0; i < 20'000; ++i) all += source("s" + std::to_string(i), "");
       return mixture(all)();
     },
     "larger than", 2},
    {"WeightOfInfinity", "x.toml", mixture(source("a", "weight = inf")), "weight", 2},
    {"WeightIsNoNumber", "x.toml", mixture(source("a", "weight = nan")), "weight", 2},
    {"WeightsWithoutEnd", "x.toml",
     [] {
       std::string all;
       for (int i = 0; i < 200'000; ++i) all += (i ? ", 1@" : "1@") + std::to_string(i);
       return mixture(source("a", "weight = \"" + all + "\""))();
     },
     "larger than", 2},
    {"TooManyWeights", "x.toml",
     [] {
       std::string all = "1";
       for (int i = 1; i < 1000; ++i) all += ", " + std::to_string(i % 3 + 1) + "@" + std::to_string(i);
       return mixture(source("a", "weight = \"" + all + "\""))();
     },
     "weight", 2},
    {"WeightsOutOfOrder", "x.toml", mixture(source("a", "weight = \"1, 2@10, 3@5\"")), "weight", 2},
    {"WeightsAtABeginningOf64Bits", "x.toml", mixture(source("a", "weight = \"1, 2@18446744073709551616\"")), "weight",
     2},
    {"WeightIsALongText", "x.toml", mixture(source("a", "weight = \"" + std::string(1'000'000, 'x') + "\"")),
     "larger than", 2},
    {"LongName", "x.toml", mixture(source(std::string(1'000'000, 'a'), "")), "x.toml", 2},
    {"SourceIsMissing", "nowhere.tokens", text(kNoFile), "there is no such file"},
};
static_assert(std::size(kMixtures) >= 10);

class HostileMixtures : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileMixtures, AreRefusedInOneLine) {
  const HostileFolder folder(GetParam());
  folder.write("x.tokens", own_file());
  if (GetParam().file != "x.toml") folder.write("x.toml", mixture("[data.source.a]\ntokens = \"nowhere.tokens\"\n")());
  folder.expect_refused({"plan", "x.toml"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileMixtures, testing::ValuesIn(kMixtures), kNameOfInput);

}  // namespace
}  // namespace lockstep::tests
