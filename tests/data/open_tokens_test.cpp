// Token files of other programs: read in place from what their published forms say, and refused where they are damaged.
#include "data/open_tokens.h"

#include <gmock/gmock.h>

#include "data/foreign_bytes.h"
#include "data/temp_folder.h"
#include "data/token_file_writer.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
using Range = std::pair<std::int64_t, std::int64_t>;

class OpenTokens : public TempFolder {
 protected:
  std::string refusal(const std::string& path, TokenType type = TokenType::named, std::int64_t vocabulary = 50'000) {
    return user_error([&] {
      const auto tokens = open_tokens(path, type, vocabulary);
      tokens->verify();
    });
  }
  std::string refusal(const MegatronText& text, std::size_t bin_bytes) {
    write("x.bin", std::string(bin_bytes, '\1'));
    return refusal(write("x.idx", text.idx()));
  }
};

Ids all_of(const TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.tokens()));
  source.read(0, ids);
  return ids;
}

template <class Id>
std::string megatron_ids() {
  return ids_of<Id>({7, 100, 0, 101, 5});
}

TEST_F(OpenTokens, MegatronDatasetsOfEveryTypeOfId) {
  const std::string payloads[] = {"",
                                  megatron_ids<std::uint8_t>(),
                                  megatron_ids<std::int8_t>(),
                                  megatron_ids<std::int16_t>(),
                                  megatron_ids<std::int32_t>(),
                                  megatron_ids<std::int64_t>(),
                                  "",
                                  "",
                                  megatron_ids<std::uint16_t>()};
  for (const std::uint8_t type : {1, 2, 3, 4, 5, 8}) {
    // Three sequences, the second empty, in two documents and one that has none.
    const MegatronText text{.type = type,
                            .lengths = {2, 0, 3},
                            .pointers = {},
                            .documents = {0, 2, 2, 3},
                            .width = std::ssize(payloads[type]) / 5};
    const std::string bin = write("d/x.bin", payloads[type]);
    const std::string idx = write("d/x.idx", text.idx());
    for (const std::string& named : {bin, idx}) {
      const auto tokens = open_tokens(named, TokenType::named, 102);
      EXPECT_EQ(all_of(*tokens), (Ids{7, 100, 0, 101, 5})) << int{type};
      EXPECT_EQ(tokens->vocabulary(), 102);
      ASSERT_EQ(tokens->documents(), 3);
      EXPECT_EQ(tokens->document(0), Range(0, 2));
      EXPECT_EQ(tokens->document(1), Range(2, 2));
      EXPECT_EQ(tokens->document(2), Range(2, 5));
      tokens->verify();
      Ids some(2);
      tokens->read(3, some);
      EXPECT_THAT(some, ElementsAre(101, 5));
    }
    const auto small = open_tokens(bin, TokenType::named, 101);
    Ids first(3);
    small->read(0, first);
    EXPECT_THAT(user_error([&] { all_of(*small); }), HasSubstr("token 3 has id 101, but the vocabulary is 101"));
  }
}

TEST_F(OpenTokens, NegativeIdsAreRefused) {
  const MegatronText text{.type = 4, .lengths = {2}, .pointers = {}, .documents = {0, 1}, .width = 4};
  write("x.bin", ids_of<std::int32_t>({5, -1}));
  EXPECT_THAT(refusal(write("x.idx", text.idx())), HasSubstr("token 1 has id -1, but the vocabulary is 50000"));
}

TEST_F(OpenTokens, IdsOfSixteenAndThirtyTwoBitsWithoutAHeader) {
  const std::string narrow = write("n.bin", ids_of<std::uint16_t>({0, 65'535, 258, 3}));
  EXPECT_EQ(all_of(*open_tokens(narrow, TokenType::u16, 1 << 20)), (Ids{0, 65'535, 258, 3}));
  const std::string wide = write("w", ids_of<std::uint32_t>({70'000, 1, 0}));
  EXPECT_EQ(all_of(*open_tokens(wide, TokenType::u32, 70'001)), (Ids{70'000, 1, 0}));
  EXPECT_EQ(open_tokens(narrow, TokenType::u16, 1 << 20)->documents(), 0);
  EXPECT_THAT(refusal(wide, TokenType::u32, 70'000), HasSubstr("token 0 has id 70000"));
  EXPECT_THAT(refusal(narrow), HasSubstr("does not say what it holds; say its type"));
  EXPECT_THAT(refusal(write("odd.bin", "123"), TokenType::u16), HasSubstr("3 bytes of ids, which is no multiple of 2"));
}

TEST_F(OpenTokens, FilesOfLlmC) {
  const std::string gpt2 = write("g.bin", llmc_bytes(20240520, 1, 3, ids_of<std::uint16_t>({50'256, 1, 2})));
  EXPECT_EQ(all_of(*open_tokens(gpt2, TokenType::named, 50'257)), (Ids{50'256, 1, 2}));
  const std::string llama = write("l.bin", llmc_bytes(20240801, 7, 2, ids_of<std::uint32_t>({128'000, 1})));
  EXPECT_EQ(all_of(*open_tokens(llama, TokenType::named, 128'256)), (Ids{128'000, 1}));
  EXPECT_THAT(refusal(write("a.bin", llmc_bytes(20240520, 2, 1, "ab"))), HasSubstr("version 2; version 1 can be read"));
  EXPECT_THAT(refusal(write("a.bin", llmc_bytes(20240520, 1, 2, "ab"))), HasSubstr("has 1 ids, but its header says 2"));
  EXPECT_THAT(refusal(write("a.bin", llmc_bytes(20240520, 1, 1, "ab").substr(0, 500))),
              HasSubstr("ends inside its header"));
  EXPECT_THAT(refusal(write("a.bin", llmc_bytes(20240801, 7, 1, "abcdef"))), HasSubstr("no multiple of 4"));
  EXPECT_THAT(refusal(gpt2, TokenType::u16), HasSubstr("says its type itself; leave its type out"));
}

TEST_F(OpenTokens, ItsOwnTokenFiles) {
  TokenFileWriter writer(folder_ / "t.bin", 300);
  writer.add(Ids{1, 299});
  writer.finish();
  const auto own = open_tokens(folder_ / "t.bin", TokenType::named, 5);
  EXPECT_EQ(own->vocabulary(), 300) << "it says so itself";
  EXPECT_EQ(all_of(*own), (Ids{1, 299}));
  EXPECT_THAT(refusal((folder_ / "t.bin").string(), TokenType::u16), HasSubstr("is a token file"));
  EXPECT_THAT(refusal((folder_ / "none.bin").string()), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal(write("alone.idx", MegatronText{.lengths = {}, .pointers = {}, .documents = {0}}.idx())),
              HasSubstr("alone.bin"));
}

TEST_F(OpenTokens, RefusesEveryDamageOfAnIndex) {
  const MegatronText good{.lengths = {2, 3}, .pointers = {}, .documents = {0, 1, 2}};
  EXPECT_EQ(refusal(good, 10), "");
  const auto with = [&](auto change) {
    MegatronText text = good;
    change(text);
    return refusal(text, 10);
  };
  EXPECT_THAT(with([](auto& t) { t.magic[0] = 'X'; }), HasSubstr("is not the index of a Megatron-LM dataset"));
  EXPECT_THAT(with([](auto& t) { t.version = 2; }), HasSubstr("is of version 2"));
  EXPECT_THAT(with([](auto& t) { t.type = 6; }), HasSubstr("holds floating-point numbers"));
  EXPECT_THAT(with([](auto& t) { t.type = 9; }), HasSubstr("ids of type 9"));
  EXPECT_THAT(with([](auto& t) { t.lengths[1] = -3; }), HasSubstr("sequence 1 has -3 ids"));
  EXPECT_THAT(with([](auto& t) { t.lengths[1] = 4; }), HasSubstr("sequence 1 ends after the .bin"));
  EXPECT_THAT(with([](auto& t) { t.lengths[1] = 2; }), HasSubstr("is of 8 bytes of ids, and the .bin has 10"));
  EXPECT_THAT(with([](auto& t) {
                t.pointers = {0, 2};
              }),
              HasSubstr("sequence 1 begins at byte 2 of the .bin, not at 4"));
  EXPECT_THAT(with([](auto& t) { t.pointers = {6, 0}; }), HasSubstr("sequence 0 begins at byte 6"));
  EXPECT_THAT(with([](auto& t) { t.documents = {0, 2, 1}; }), HasSubstr("document 2 begins with sequence 1"));
  EXPECT_THAT(with([](auto& t) { t.documents = {0, 2, 1, 2}; }), HasSubstr("document 2 begins with sequence 1"));
  EXPECT_THAT(with([](auto& t) { t.documents = {1, 1, 2}; }), HasSubstr("document 0 begins with sequence 1"));
  EXPECT_THAT(with([](auto& t) { t.documents = {0, 1, 3}; }), HasSubstr("document 2 begins with sequence 3"));
  EXPECT_THAT(with([](auto& t) { t.documents = {}; }), HasSubstr("has no document index"));
  write("x.bin", std::string(10, '\1'));
  for (std::size_t end = 0; end < good.idx().size(); ++end)
    EXPECT_NE(refusal(write("x.idx", good.idx().substr(0, end))), "") << "cut after " << end;
  EXPECT_THAT(refusal(write("x.idx", good.idx() + "ab")), HasSubstr("data of several modes"));
  EXPECT_THAT(refusal(write("x.idx", good.idx() + "abc")), HasSubstr("3 bytes after its last section"));
  // Counts whose sections would be larger than any file.
  std::string huge = good.idx();
  for (std::size_t at = 18; at < 34; ++at) huge[at] = '\xff';
  EXPECT_THAT(refusal(write("x.idx", huge)), HasSubstr("too few for its"));
}

TEST_F(OpenTokens, AnotherContentHasAnotherFingerprint) {
  std::string ids(1 << 20, '\1');
  const auto print = [&] { return open_tokens(write("f.bin", ids), TokenType::u16, 1000)->fingerprint(); };
  const std::uint64_t first = print();
  EXPECT_EQ(print(), first);
  ids.back() = '\2';
  EXPECT_NE(print(), first) << "the end";
  ids.back() = '\1';
  ids[ids.size() / 2] = '\2';
  EXPECT_NE(print(), first) << "the middle";
  ids.resize(ids.size() - 2);
  EXPECT_NE(print(), first) << "the size";
  const MegatronText one{.lengths = {2, 3}, .pointers = {}, .documents = {0, 1, 2}};
  const MegatronText other{.lengths = {3, 2}, .pointers = {}, .documents = {0, 1, 2}};
  write("m.bin", std::string(10, '\1'));
  const auto of = [&](const MegatronText& text) {
    return open_tokens(write("m.idx", text.idx()), TokenType::named, 1000)->fingerprint();
  };
  EXPECT_NE(of(one), of(other)) << "other documents";
}

}  // namespace
}  // namespace lockstep
