// Text from files and folders: what is read, in which order, and what is refused.
#include "data/text_source.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "data/byte_tokenizer.h"
#include "data/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class Text : public TempFolder {};

// The documents, each followed by '|'.
std::string text_of(const TextSource& source) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(source.tokens()));
  source.read(0, ids);
  std::string text;
  for (const std::int32_t id : ids) text += id == kEndOfDocument ? '|' : static_cast<char>(id);
  return text;
}
std::string text_of(const std::vector<std::string>& paths) { return text_of(TextSource(paths)); }

TEST_F(Text, AFolderIsReadInTheOrderOfItsPaths) {
  write("b.txt", "2");
  write("a/z.txt", "1");
  write("a/b/c.txt", "0");
  write("B.txt", "capitals come first ");
  write("a-x.txt", "- comes before / ");
  EXPECT_EQ(text_of(std::vector{folder_.string()}), "capitals come first |- comes before / |0|1|2|");
  EXPECT_EQ(text_of(std::vector{folder_.string() + "/"}), "capitals come first |- comes before / |0|1|2|");
}

TEST_F(Text, NamedPathsAreReadInTheOrderGiven) {
  const std::string b = write("b", "bb"), a = write("a", "aa"), c = write("sub/c", "cc");
  EXPECT_EQ(text_of({b, (folder_ / "sub").string(), a, b}), "bb|cc|aa|bb|");
}

TEST_F(Text, PassesOverWhatIsNoText) {
  write("text", "text");
  write(".hidden", "no");
  write(".git/inside", "no");
  write("binary", std::string("a\0b", 3));
  write("binary-late-in-what-is-looked-at", std::string(8191, 'x') + '\0');
  write("empty", "");
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  fs::create_symlink("nowhere", folder_ / "broken");
  EXPECT_EQ(text_of(std::vector{folder_.string()}), "text|");
  EXPECT_EQ(text_of(std::vector{write(".named", "a hidden file that is named is meant")}).size(), 37u);
}

TEST_F(Text, AZeroAfterTheFirst8KiBDoesNotMakeAFileBinary) {
  const std::string text = std::string(8192, 'x') + '\0';
  EXPECT_EQ(text_of(std::vector{write("long", text)}), text + "|");
}

TEST_F(Text, LoopsOfLinksDoNoHarm) {
  write("one/text", "1");
  write("two/text", "2");
  fs::create_directory_symlink("..", folder_ / "one/up");
  fs::create_directory_symlink("../two", folder_ / "one/across");
  fs::create_directory_symlink("../one", folder_ / "two/across");
  fs::create_symlink("itself", folder_ / "itself");
  EXPECT_EQ(text_of(std::vector{folder_.string()}), "2|1|") << "one/across comes first, and two is read once";
}

TEST_F(Text, LinksToFilesAreFollowed) {
  write("real/text", "x");
  fs::create_directory(folder_ / "links");
  fs::create_symlink("../real/text", folder_ / "links/text");
  EXPECT_EQ(text_of(std::vector{(folder_ / "links").string()}), "x|");
}

TEST_F(Text, RefusesWhatHoldsNoTextAndSaysWhich) {
  const auto failure = [](const std::string& path) { return user_error([&] { TextSource(std::vector{path}); }); };
  EXPECT_THAT(failure((folder_ / "gone").string()), HasSubstr("gone: there is no such file; check the path"));
  fs::create_directory(folder_ / "bare");
  EXPECT_THAT(failure((folder_ / "bare").string()), HasSubstr("bare: there is no text in it"));
  EXPECT_THAT(failure(write("empty", "")), HasSubstr("empty: is empty"));
  EXPECT_THAT(failure(write("binary", std::string(1, '\0'))), HasSubstr("binary: is binary, not text"));
  EXPECT_THAT(failure("/dev/null"), HasSubstr("/dev/null: is not a regular file"));
  EXPECT_THAT(user_error([] { TextSource(std::string_view()); }), HasSubstr("the text is empty"));
  const std::string good = write("good", "x");
  EXPECT_THAT(user_error([&] {
                TextSource(std::vector{good, good + "2"});
              }),
              HasSubstr("good2: there is no such file"));
}

TEST_F(Text, AnUnreadableFolderIsAnErrorNotLessText) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  write("good", "x");
  write("closed/text", "y");
  fs::permissions(folder_ / "closed", fs::perms::none);
  EXPECT_THAT(user_error([&] { TextSource(std::vector{folder_.string()}); }), HasSubstr("closed: cannot be read"));
  fs::permissions(folder_ / "closed", fs::perms::owner_all);
}

TEST(TextInMemory, IsOneDocument) {
  const TextSource source(std::string_view("h\xC3\xA9"));
  EXPECT_EQ(source.tokens(), 4);
  EXPECT_EQ(source.vocabulary(), 257);
  EXPECT_EQ(source.documents(), 1);
  EXPECT_EQ(source.bytes(), 8) << "two bytes a token, no room to spare";
  std::vector<std::int32_t> ids(2);
  source.read(2, ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0xA9, kEndOfDocument}));
}

TEST(TextInMemory, ReadsNothingOutside) {
  const TextSource source(std::string_view("abc"));
  std::vector<std::int32_t> ids(2);
  source.read(2, ids);
  EXPECT_THROW(source.read(3, ids), ProgramError);
  EXPECT_THROW(source.read(-1, ids), ProgramError);
  EXPECT_THROW(source.read(INT64_MAX, ids), ProgramError);
  source.read(4, {});
}

TEST_F(Text, TheFingerprintIsTheContents) {
  const std::string_view text = "to be or not to be";
  const std::uint64_t print = TextSource(text).fingerprint();
  EXPECT_EQ(TextSource(std::vector{write("x", std::string(text))}).fingerprint(), print);
  EXPECT_NE(TextSource(std::string_view("to be or not to bE")).fingerprint(), print);
  // The same bytes as two documents are other tokens.
  EXPECT_NE(TextSource(std::vector{write("1", "to be or"), write("2", " not to be")}).fingerprint(), print);
}

}  // namespace
}  // namespace lockstep
