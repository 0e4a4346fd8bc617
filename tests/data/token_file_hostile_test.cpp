// Token files from anywhere: every wrong byte is refused in one line, or does no harm.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "base/checksum.h"
#include "data/temp_folder.h"
#include "data/token_file.h"
#include "data/token_file_writer.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class HostileTokenFile : public TempFolder {
 protected:
  void SetUp() override {
    TempFolder::SetUp();
    TokenFileWriter writer(folder_ / "good", 300);
    for (const std::vector<std::int32_t>& document : {std::vector<std::int32_t>{1, 2, 299}, {4}, {5, 6}}) {
      writer.add(document);
    }
    writer.finish();
    good_ = bytes_of(folder_ / "good");
    ASSERT_EQ(good_.size(), 64u + 64u + 24u);
  }
  std::string good_;
};

TokenFile opened(const std::string& bytes) { return TokenFile(std::as_bytes(std::span(bytes)), "hostile"); }

std::string open_error(const std::string& bytes) {
  return user_error([&] { opened(bytes); });
}

template <class T>
std::string with(std::string bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

// Both checksums made right, as an attacker would.
std::string sealed(std::string bytes) {
  bytes = with(std::move(bytes), 40, checksum(std::as_bytes(std::span(bytes).subspan(64))));
  return with(std::move(bytes), 56, checksum(std::as_bytes(std::span(bytes).first(56))));
}

TEST_F(HostileTokenFile, TheGoodFileIsGood) {
  EXPECT_EQ(sealed(good_), good_);
  opened(good_).verify();
}

TEST_F(HostileTokenFile, IsRefusedWhenCutAnywhere) {
  for (std::size_t size = 0; size < good_.size(); ++size) {
    EXPECT_NE(open_error(good_.substr(0, size)), "") << size;
    if (size < 64) {
      EXPECT_THAT(open_error(good_.substr(0, size)), HasSubstr("inside the header")) << size;
    } else {
      EXPECT_THAT(open_error(good_.substr(0, size)), HasSubstr("bytes")) << size;
    }
  }
  EXPECT_THAT(open_error(good_ + '\0'), HasSubstr("has 153 bytes, but its header says 152"));
}

TEST_F(HostileTokenFile, IsRefusedWhenAnyBitOfTheHeaderIsWrong) {
  for (std::size_t at = 0; at < 64; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good_;
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
      EXPECT_NE(open_error(bytes), "") << at << '.' << bit;
    }
  }
}

TEST_F(HostileTokenFile, VerifyNoticesAnyBitOfThePayload) {
  for (std::size_t at = 64; at < good_.size(); ++at) {
    std::string bytes = good_;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    EXPECT_NE(user_error([&] { opened(bytes).verify(); }), "") << at;
  }
}

TEST_F(HostileTokenFile, SaysWhichVersionsCanBeRead) {
  EXPECT_THAT(open_error(with(good_, 8, std::uint32_t{3})),
              HasSubstr("is of version 3; versions 1 and 2 can be read; make the file again with this program"));
  EXPECT_THAT(open_error(with(good_, 8, std::uint32_t{0})), HasSubstr("is of version 0"));
}

TEST_F(HostileTokenFile, TextIsNoTokenFile) {
  EXPECT_THAT(open_error("once upon a time"), HasSubstr("hostile: is not a token file; name a token file"));
  EXPECT_THAT(open_error("LSTOKEN"), HasSubstr("inside the header"));
  EXPECT_THAT(open_error(std::string(200, '\0')), HasSubstr("is not a token file"));
}

TEST_F(HostileTokenFile, EachFieldIsCheckedEvenUnderARightChecksum) {
  for (const std::uint32_t width : {0u, 3u, 5u, 8u, 0x80000002u}) {
    EXPECT_THAT(open_error(sealed(with(good_, 12, width))), HasSubstr("bytes per token; they can be 1, 2 or 4"));
  }
  EXPECT_NE(open_error(sealed(with(good_, 12, 1u))), "") << "narrower than it is";
  // Wider than it is, into the padding: a file that could be, but its ids are not in the vocabulary.
  EXPECT_THAT(user_error([&] { opened(sealed(with(good_, 12, 4u))).verify(); }), HasSubstr("token 0 has id 131073"));
  for (const std::uint64_t vocabulary : {std::uint64_t{0}, std::uint64_t{65537}, ~std::uint64_t{0}}) {
    EXPECT_THAT(open_error(sealed(with(good_, 16, vocabulary))), HasSubstr("it can be 1 to 65536"));
  }
  EXPECT_THAT(open_error(sealed(with(good_, 48, std::uint64_t{1}))), HasSubstr("bytes 48 to 55 are not zero"));
  EXPECT_THAT(open_error(sealed(with(good_, 80, '\1'))), HasSubstr("the padding after the tokens is not zero"));
  EXPECT_THAT(open_error(sealed(with(good_, 32, std::uint64_t{7}))), HasSubstr("7 documents, but only 6 tokens"));
}

TEST_F(HostileTokenFile, CountsThatOverflowAreRefused) {
  const std::uint64_t big[] = {100,
                               std::uint64_t{1} << 31,
                               std::uint64_t{1} << 60,
                               std::uint64_t{1} << 61,
                               std::uint64_t{1} << 62,
                               (std::uint64_t{1} << 63) - 32,
                               std::uint64_t{1} << 63,
                               (std::uint64_t{1} << 63) + 6,
                               ~std::uint64_t{0}};
  for (const std::uint64_t count : big) {
    EXPECT_THAT(open_error(sealed(with(good_, 24, count))), HasSubstr("do not fit")) << count;
    EXPECT_THAT(open_error(sealed(with(good_, 32, count))), HasSubstr("do not fit")) << count;
    EXPECT_THAT(open_error(sealed(with(with(good_, 24, count), 32, count))), HasSubstr("do not fit")) << count;
  }
  // Fewer than there are, too: every byte of the file has an owner.
  EXPECT_NE(open_error(sealed(with(good_, 24, std::uint64_t{5}))), "");
  EXPECT_NE(open_error(sealed(with(good_, 32, std::uint64_t{2}))), "");
}

TEST_F(HostileTokenFile, AnIndexThatDoesNotAscendIsRefused) {
  EXPECT_THAT(open_error(sealed(with(good_, 128, std::uint64_t{1}))), HasSubstr("document 0 begins at token 1, not 0"));
  for (const std::uint64_t second : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}}) {
    EXPECT_THAT(open_error(sealed(with(good_, 136, second))), HasSubstr("document 0 is tokens 0 to"));
  }
  for (const std::uint64_t third : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{6}, ~std::uint64_t{0}}) {
    const std::string bytes = sealed(with(good_, 144, third));
    const TokenFile file(std::as_bytes(std::span(bytes)), "hostile");  // opening looks at the first document only
    EXPECT_THAT(user_error([&] { file.verify(); }), HasSubstr("document ")) << third;
    EXPECT_THAT(user_error([&] { file.document(1), file.document(2); }), HasSubstr("document ")) << third;
  }
}

TEST_F(HostileTokenFile, AnIdOutsideTheVocabularyIsNamedWithItsPlace) {
  const std::string bytes = sealed(with(good_, 64 + 2 * 4, std::uint16_t{300}));
  const TokenFile file(std::as_bytes(std::span(bytes)), "hostile");
  std::vector<std::int32_t> ids(3);
  file.read(0, ids);  // not reached yet
  EXPECT_THAT(user_error([&] { file.read(3, ids); }),
              HasSubstr("hostile: token 4 has id 300, but the vocabulary is 300"));
  EXPECT_THAT(user_error([&] { file.verify(); }), HasSubstr("token 4"));
}

TEST_F(HostileTokenFile, AnIdBeyond31BitsIsRefusedNotNegative) {
  {
    TokenFileWriter writer(folder_ / "wide", std::int64_t{1} << 31);
    writer.add(std::vector<std::int32_t>{1, 2});
    writer.finish();
  }
  const std::string bytes = sealed(with(bytes_of(folder_ / "wide"), 68, 0x80000001u));
  const TokenFile file(std::as_bytes(std::span(bytes)), "hostile");
  std::vector<std::int32_t> ids(2);
  EXPECT_THAT(user_error([&] { file.read(0, ids); }), HasSubstr("token 1 has id 2147483649"));
}

TEST_F(HostileTokenFile, ReadsNothingOutside) {
  const TokenFile file(std::as_bytes(std::span(good_)), "hostile");
  std::vector<std::int32_t> ids(2);
  EXPECT_THROW(file.read(5, ids), ProgramError);
  EXPECT_THROW(file.read(-1, ids), ProgramError);
  EXPECT_THROW(file.read(std::numeric_limits<std::int64_t>::max(), ids), ProgramError);
}

TEST_F(HostileTokenFile, IsReadWhereverItsBytesLie) {
  const std::string shifted = "x" + good_;
  const TokenFile file(std::as_bytes(std::span(shifted)).subspan(1), "shifted");
  file.verify();
  std::vector<std::int32_t> ids(6);
  file.read(0, ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 2, 299, 4, 5, 6}));
}

TEST_F(HostileTokenFile, AMissingFileIsTheUsers) {
  EXPECT_THAT(user_error([&] { TokenFile(folder_ / "gone"); }), HasSubstr("there is no such file"));
  EXPECT_THAT(user_error([&] { TokenFile file(folder_); }), HasSubstr("is a folder"));
}

}  // namespace
}  // namespace lockstep
