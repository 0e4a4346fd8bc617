// Nobody joins without the token, nobody without it keeps the ranks out, and what makes no sense is refused.
#include "comm/control_ranks.h"

namespace lockstep::tests {
namespace {

using namespace lockstep::control;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(ControlSha256, IsThatOfItsStandards) {
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // RFC 4231, cases 2 and 6.
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(ControlToken, MustBeLongEnoughAndIsNeverTheSameTwice) {
  EXPECT_THAT(words_of([] { Token("short"); }), HasSubstr("a token of 5 characters can be guessed; give all ranks"));
  EXPECT_NE(Token::make(), Token::make());
  EXPECT_EQ(Token::make().size(), 64u);
}

// Whatever byte of a proof is wrong, and however little.
TEST(ControlToken, EveryByteIsCompared) {
  const std::string proof = Token::make().substr(0, kVerdictBytes);
  EXPECT_TRUE(equal_in_constant_time(proof, proof));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_FALSE(equal_in_constant_time(proof, proof.substr(1)));
  EXPECT_FALSE(equal_in_constant_time(proof, proof + proof.back()));
  for (std::size_t at = 0; at < proof.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = proof;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      EXPECT_FALSE(equal_in_constant_time(proof, other)) << "byte " << at << ", bit " << bit;
    }
}

TEST(ControlToken, EveryByteOfAnAnswerAndOfAVerdictCounts) {
  const Token token(kToken);
  const CoordinatorHandshake coordinator(token);
  RankHandshake rank(token);
  const std::string answer = rank.answer(coordinator.greeting()), verdict = coordinator.verdict(answer);
  ASSERT_EQ(answer.size(), kAnswerBytes);
  ASSERT_EQ(verdict.size(), kVerdictBytes);
  EXPECT_EQ(words_of([&] { rank.check(verdict); }), "");
  const auto with_other = [](std::string bytes, std::size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  for (std::size_t at = 0; at < kAnswerBytes; ++at) EXPECT_EQ(coordinator.verdict(with_other(answer, at)), "") << at;
  for (std::size_t at = 0; at < kVerdictBytes; ++at)
    EXPECT_THAT(words_of([&] { rank.check(with_other(verdict, at)); }), HasSubstr("does not know the token")) << at;
}

// Tokens that differ in one character, the first or any other, are two tokens.
TEST(ControlToken, EveryCharacterOfItCounts) {
  const std::string text = Token::make();
  const Token token(text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string other = text;
    other[at] = other[at] == 'x' ? 'y' : 'x';
    const Token wrong(other);
    const CoordinatorHandshake coordinator(token);
    RankHandshake rank(wrong);
    EXPECT_EQ(coordinator.verdict(rank.answer(coordinator.greeting())), "") << at;
  }
}

TEST(ControlToken, AWrongOneIsRefusedOnBothSidesAndToldOnce) {
  std::vector<std::string> told;
  {
    Coordinator coordinator({.token = kToken, .notify = [&](const std::string& words) { told.push_back(words); }});
    SessionOptions wrong = place_of(coordinator, 0, 1);
    wrong.token = "another token altogether";
    for (int i = 0; i < 3; ++i)
      EXPECT_LT(seconds_of([&] {
                  EXPECT_THAT(words_of([&] { Session session(wrong); }),
                              HasSubstr("the coordinator refuses this rank's token; give all ranks the same one"));
                }),
                1);
    Session session(place_of(coordinator, 0, 1));  // and the right one is let in
    session.leave();
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], AllOf(HasSubstr("127.0.0.1"), HasSubstr("another token")));
}

TEST(ControlToken, ACoordinatorThatDoesNotKnowItIsNotTrusted) {
  const Token token(kToken), other("another token altogether");
  CoordinatorHandshake impostor(other);
  RankHandshake rank(token);
  EXPECT_EQ(impostor.verdict(rank.answer(impostor.greeting())), "");
  EXPECT_THAT(words_of([&] { rank.check(std::string(kVerdictBytes, 'x')); }), HasSubstr("does not know the token"));
  EXPECT_THAT(words_of([&] { rank.answer("SSH-2.0-OpenSSH_9.2 Debi"); }), HasSubstr("no coordinator of ranks"));
}

TEST(ControlToken, AnOldAnswerDoesNotFitANewGreeting) {
  const Token token(kToken);
  CoordinatorHandshake first(token), second(token);
  RankHandshake rank(token);
  const std::string answer = rank.answer(first.greeting());
  EXPECT_NE(first.verdict(answer), "");
  EXPECT_EQ(second.verdict(answer), "");
  EXPECT_EQ(first.verdict(answer.substr(1)), "");
}

// Frames.

TEST(ControlFrames, ComeWholeHoweverTheirBytesAreCut) {
  Writer records;
  const Record record{.group = 7, .sequence = 1ull << 40, .op = CommOp::all_gather, .count = 9, .counts = {4, 5}};
  record.encode(records);
  const std::string bytes = encode({FrameType::records, 3, records.take()}) + encode({FrameType::heartbeat, 4, ""});
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameBuffer buffer;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      buffer.feed(std::string_view(bytes).substr(at, piece));
      while (auto frame = buffer.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 2u);
    EXPECT_EQ(frames[1].epoch, 4u);
    const auto read = decode_records(frames[0].payload);
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].sequence, record.sequence);
    EXPECT_EQ(describe(message_of(read[0], 2), 2), "all_gather of 9 fp32 cut [4, 5] (canonical)");
  }
}

TEST(ControlFrames, ThatBreakALimitAreRefused) {
  const auto broken = [](std::size_t at, char byte) {
    std::string bytes = encode({FrameType::heartbeat, 1, ""});
    bytes[at] = byte;
    FrameBuffer buffer;
    buffer.feed(bytes);
    return words_of([&] { buffer.next(); });
  };
  EXPECT_THAT(broken(0, 'X'), HasSubstr("does not begin as one"));
  EXPECT_THAT(broken(4, 0), HasSubstr("0 in the type of a frame"));
  EXPECT_THAT(broken(4, 11), HasSubstr("11 in the type of a frame"));
  EXPECT_THAT(broken(6, 2), HasSubstr("2 in the version of a frame"));
  EXPECT_THAT(broken(14, 2), HasSubstr("131072 in the length of a frame"));
  const std::string join = Join{1, 2, 3, "h", 4}.encode();
  EXPECT_THAT(words_of([&] { Join::decode(join.substr(0, join.size() - 1)); }), HasSubstr("ends too early"));
  EXPECT_THAT(words_of([&] { Join::decode(join + "x"); }), HasSubstr("1 bytes too many"));
  EXPECT_THAT(words_of([&] { Join::decode(Join{1, 2, 0.001, "h", 4}.encode()); }), HasSubstr("a deadline of 0.001 s"));
  EXPECT_THAT(words_of([&] { Join::decode(Join{1, 2, 3, "h\n", 4}.encode()); }), HasSubstr("10 in a host's name"));
}

// What a rank with the token may say wrongly of its groups and calls.
TEST(ControlFrames, OfGroupsAndCallsThatContradictEachOtherAreRefused) {
  Calls calls(3);
  const auto opened = [&](int rank, const GroupSpec& spec) { return words_of([&] { calls.open(rank, spec); }); };
  EXPECT_EQ(opened(0, {1, "w", "w", {0, 1}}), "");
  EXPECT_THAT(opened(0, {2, "w", "w", {0, 1}}), HasSubstr("'w' is opened twice"));
  EXPECT_THAT(opened(0, {1, "x", "x", {0, 1}}), HasSubstr("group 1 is open already"));
  EXPECT_THAT(opened(0, {3, "x", "x", {0, 0, 1}}), HasSubstr("a rank twice"));
  EXPECT_THAT(opened(0, {3, "x", "x", {0, 3}}), HasSubstr("a group with a rank 3"));
  EXPECT_THAT(opened(0, {3, "x", "x", {1, 2}}), HasSubstr("of other ranks"));
  const auto noted = [&](Record record) { return words_of([&] { calls.note(0, {&record, 1}); }); };
  EXPECT_EQ(noted({.group = 1, .sequence = 5}), "");
  EXPECT_THAT(noted({.group = 1, .sequence = 5}), HasSubstr("#5 of 'w' after #5"));
  EXPECT_THAT(noted({.group = 9, .sequence = 6}), HasSubstr("group 9 is not open"));
  EXPECT_THAT(noted({.group = 1, .sequence = 6, .op = CommOp::broadcast, .peer = 2}), HasSubstr("a peer 2 of 2"));
  EXPECT_THAT(noted({.group = 1, .sequence = 6, .op = CommOp::send, .peer = 0}), HasSubstr("a peer 0 of 2"));
  EXPECT_THAT(words_of([&] { calls.close(1, 1); }), HasSubstr("group 1 is not open"));
}

// Strangers.

TEST(ControlStrangers, NothingOfThemIsParsedBeforeTheToken) {
  Coordinator coordinator(with_token());
  Stranger stranger(coordinator);
  const std::string join = encode({FrameType::join, 1, Join{0, 1, 1, "a host of some length", 1}.encode()});
  ASSERT_GT(join.size(), kAnswerBytes);
  stranger.say(join);
  const std::string heard = stranger.hear(kGreetingBytes + kVerdictBytes + 1000, 3);
  EXPECT_EQ(heard.size(), kGreetingBytes + kVerdictBytes);  // no refusal in words, no welcome
  EXPECT_EQ(heard.substr(kGreetingBytes), refusal());
}

TEST(ControlStrangers, OneThatSaysNothingIsDropped) {
  Coordinator coordinator(with_token());
  Stranger stranger(coordinator);
  const double seconds = seconds_of([&] { EXPECT_EQ(stranger.hear(1000, 5).size(), kGreetingBytes); });
  EXPECT_GT(seconds, 1);
  EXPECT_LT(seconds, 4);
}

TEST(ControlStrangers, ManyOfThemDoNotKeepTheRanksOut) {
  Coordinator coordinator(with_token());
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 400; ++i) {
    crowd.push_back(std::make_unique<Stranger>(coordinator));
    ASSERT_TRUE(crowd.back()->connected()) << i;
  }
  const double seconds = seconds_of([&] {
    EXPECT_THAT(words_of_each(8,
                              [&](int rank) {
                                Session session(place_of(coordinator, rank, 8));
                                session.leave();
                              }),
                Each(""));
  });
  EXPECT_LT(seconds, 1);
  // The oldest have made room before their silence would have ended them.
  EXPECT_LT(seconds_of([&] { crowd.front()->hear(1000, 5); }), 1);
}

TEST(ControlStrangers, OneWithTheTokenThatSpeaksNonsenseIsGivenUp) {
  Coordinator coordinator(with_token());
  Stranger stranger(coordinator);
  stranger.prove();
  std::string frame = encode({FrameType::join, 1, ""});
  frame[kHeaderBytes - 1] = '\x7f';  // of two thousand million bytes
  stranger.say(frame);
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(stranger.hear(1000, 5), ""); }), 1);
  Session session(place_of(coordinator, 0, 1));
  session.leave();
}

}  // namespace
}  // namespace lockstep::tests
