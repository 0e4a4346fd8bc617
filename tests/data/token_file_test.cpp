// Token files: what is written is read back, a failure leaves nothing behind, and damage is noticed.
#include "data/token_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "base/philox.h"
#include "data/temp_folder.h"
#include "data/token_file_writer.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

class TokenFiles : public TempFolder {
 protected:
  std::filesystem::path path() const { return folder_ / "t.tokens"; }

  void write_documents(std::int64_t vocabulary, const std::vector<Ids>& documents) const {
    TokenFileWriter writer(path(), vocabulary);
    for (const Ids& document : documents) writer.add(document);
    writer.finish();
  }
};

Ids read_all(const TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.tokens()));
  source.read(0, ids);
  return ids;
}

TEST_F(TokenFiles, GiveBackWhatWasWrittenInEveryWidth) {
  struct Case {
    std::int64_t vocabulary, width;
  };
  for (const auto [vocabulary, width] :
       {Case{1, 1}, Case{256, 1}, Case{257, 2}, Case{65536, 2}, Case{65537, 4}, Case{std::int64_t{1} << 31, 4}}) {
    const auto last = static_cast<std::int32_t>(vocabulary - 1);
    write_documents(vocabulary, {{0, last, 0}, {last}, {}, {last, last, last, 0}});
    const TokenFile file(path());
    file.verify();
    EXPECT_EQ(file.header().width, width);
    EXPECT_EQ(file.vocabulary(), vocabulary);
    EXPECT_EQ(read_all(file), (Ids{0, last, 0, last, last, last, last, 0}));
    ASSERT_EQ(file.documents(), 3) << "one without tokens is no document";
    EXPECT_EQ(file.document(0), (std::pair<std::int64_t, std::int64_t>(0, 3)));
    EXPECT_EQ(file.document(1), (std::pair<std::int64_t, std::int64_t>(3, 4)));
    EXPECT_EQ(file.document(2), (std::pair<std::int64_t, std::int64_t>(4, 8)));
    EXPECT_THROW(file.document(3), ProgramError);
    EXPECT_THROW(file.document(-1), ProgramError);
    EXPECT_THAT(files(), ElementsAre("t.tokens"));
  }
}

TEST_F(TokenFiles, SurviveBuffersAndPaddingOfEverySize) {
  for (int count = 0; count <= 130; ++count) {  // two bytes each: across two multiples of 64
    Ids document;
    for (int i = 0; i < count; ++i) document.push_back(i * 7 % 1000);
    write_documents(1000, {document});
    const TokenFile file(path());
    file.verify();
    EXPECT_EQ(read_all(file), document);
    EXPECT_EQ(file.header().index_at() % 64, 0);
  }
  std::vector<Ids> many(3000);  // several times the writer's buffer, in tokens and in documents
  Ids expected;
  for (std::size_t d = 0; d < many.size(); ++d) {
    many[d].resize(1 + philox(3, d)[0] % 700);
    for (std::size_t i = 0; i < many[d].size(); ++i) many[d][i] = static_cast<std::int32_t>(philox(d, i)[0] % 100000);
    expected.insert(expected.end(), many[d].begin(), many[d].end());
  }
  write_documents(100000, many);
  const TokenFile file(path());
  file.verify();
  EXPECT_EQ(read_all(file), expected);
  Ids part(1000);
  file.read(500001, part);
  EXPECT_EQ(part, Ids(expected.begin() + 500001, expected.begin() + 501001));
}

TEST_F(TokenFiles, HaveTheBytesThatTheFormatSays) {
  write_documents(300, {{1, 299}, {2}});
  const std::string bytes = bytes_of(path());
  ASSERT_EQ(bytes.size(), 64u + 64u + 16u);
  const auto u64 = [&](std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  EXPECT_EQ(bytes.substr(0, 8), "LSTOKENS");
  EXPECT_EQ(u64(8), 1u | std::uint64_t{2} << 32) << "version, width";
  EXPECT_EQ(u64(16), 300u);
  EXPECT_EQ(u64(24), 3u);
  EXPECT_EQ(u64(32), 2u);
  EXPECT_EQ(u64(48), 0u);
  const auto span = std::as_bytes(std::span(bytes));
  EXPECT_EQ(u64(40), checksum(span.subspan(64)));
  EXPECT_EQ(u64(56), checksum(span.first(56)));
  EXPECT_EQ(bytes.substr(64, 6), std::string("\x01\0\x2B\x01\x02\0", 6));
  EXPECT_EQ(bytes.substr(70, 58), std::string(58, '\0'));
  EXPECT_EQ(u64(128), 0u);
  EXPECT_EQ(u64(136), 2u);
}

TEST_F(TokenFiles, HaveTheChecksumsOfTheExampleInTheFormatsPage) {
  write_documents(4, {{1, 2}, {3}});
  const std::string bytes = bytes_of(path());
  ASSERT_EQ(bytes.size(), 144u);
  EXPECT_EQ(bytes.substr(40, 8), "\xc6\x08\xeb\x37\x82\xae\x6e\x08");
  EXPECT_EQ(bytes.substr(56, 8), "\x19\x46\xe2\xde\xb1\x88\xaa\x6f");
}

TEST_F(TokenFiles, WithoutDocumentsAreEmptyNotBroken) {
  write_documents(10, {});
  const TokenFile file(path());
  file.verify();
  EXPECT_EQ(file.tokens(), 0);
  EXPECT_EQ(file.documents(), 0);
}

TEST_F(TokenFiles, AFingerprintIsTheContents) {
  write_documents(300, {{1, 2, 3}});
  const std::uint64_t print = TokenFile(path()).fingerprint();
  write_documents(300, {{1, 2, 3}});
  EXPECT_EQ(TokenFile(path()).fingerprint(), print);
  write_documents(300, {{1, 2, 4}});
  EXPECT_NE(TokenFile(path()).fingerprint(), print);
  write_documents(301, {{1, 2, 3}});
  EXPECT_NE(TokenFile(path()).fingerprint(), print);
  write_documents(300, {{1}, {2, 3}});
  EXPECT_NE(TokenFile(path()).fingerprint(), print);
}

TEST_F(TokenFiles, AppearOnlyWhenFinished) {
  write("t.tokens", "the old file");
  {
    TokenFileWriter writer(path(), 10);
    writer.add(Ids{1, 2, 3});
    EXPECT_EQ(bytes_of(path()), "the old file");
  }
  EXPECT_EQ(bytes_of(path()), "the old file");
  EXPECT_THAT(files(), ElementsAre("t.tokens")) << "and the partial file is gone";
}

TEST_F(TokenFiles, TheWriterRefusesIdsOutsideItsVocabulary) {
  TokenFileWriter writer(path(), 10);
  EXPECT_THROW(writer.add(Ids{1, 10}), ProgramError);
  EXPECT_THROW(writer.add(Ids{-1}), ProgramError);
  writer.add(Ids{9});
  writer.finish();
  EXPECT_EQ(read_all(TokenFile(path())), Ids{9}) << "and nothing of a refused document is written";
  EXPECT_THROW(writer.add(Ids{1}), ProgramError);
  EXPECT_THROW(writer.finish(), ProgramError);
}

TEST_F(TokenFiles, AMissingFolderIsTheEnvironments) {
  EXPECT_THROW(TokenFileWriter(folder_ / "none" / "t", 10), EnvironmentError);
}

// A limit on the size of files stands for a full disk; it cannot be lifted again, so a child process lives under it.
TEST_F(TokenFiles, AFullDiskLeavesNothingBehind) {
  for (const std::size_t tokens : {std::size_t{1000}, std::size_t{4'000'000}}) {  // fails in finish() and in add()
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{1024, 1024};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      int result = 1;
      try {
        write_documents(300, {Ids(tokens, 7)});
      } catch (const EnvironmentError& error) {
        result = std::string(error.what()).find("write failed") != std::string::npos ? 0 : 2;
      }
      ::_exit(result);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(files().empty());
  }
}

}  // namespace
}  // namespace lockstep
