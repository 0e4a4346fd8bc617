// What travels after the handshake can be read by its two ends alone, and by them only whole, once and in order.
#include "comm/control_ranks.h"
#include "comm/eavesdropper.h"

namespace lockstep::tests {
namespace {

using namespace lockstep::control;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kDoesNotVerify = "a frame does not verify: it was changed or repeated on its way";

// One direction of a connection: some frames, each sealed; the first has the stream's header before it.
class Sealed : public ::testing::Test {
 protected:
  explicit Sealed() {
    FrameSealer sealer(key_);
    for (const Frame& frame : frames_) {
      sealed_.emplace_back();
      sealer.append(frame, sealed_.back());
    }
  }
  static std::vector<Frame> some_frames() {
    return {{FrameType::ask, 1, Ask{Ask::Kind::put, 1, 1, "key", "value"}.encode()},
            {FrameType::heartbeat, 2, ""},
            {FrameType::failed, 3, encode_failure({"words"})}};
  }
  // The payloads that come out of these bytes, and what is said when no more do.
  std::pair<std::vector<std::string>, std::string> opened(std::string_view bytes) const {
    FrameBuffer buffer(key_);
    buffer.feed(bytes);
    std::vector<std::string> payloads;
    const std::string words = words_of([&] {
      while (const auto frame = buffer.next()) payloads.push_back(frame->payload);
    });
    EXPECT_EQ(words_of([&] { buffer.next(); }), words);  // and never another
    return {payloads, words};
  }
  // That what comes is what was sent, up to where it was changed, and that the change is named.
  void expect_refused(const std::string& bytes, std::size_t good, const std::string& what) const {
    const auto [payloads, words] = opened(bytes);
    ASSERT_EQ(payloads.size(), good) << what;
    for (std::size_t i = 0; i < good; ++i) EXPECT_EQ(payloads[i], frames_[i].payload) << what;
    EXPECT_EQ(words, kDoesNotVerify) << what;
  }

  const Secret key_ = hash_of("a key of the tests");
  const std::vector<Frame> frames_ = some_frames();
  std::vector<std::string> sealed_;
};

TEST_F(Sealed, FramesComeWholeHoweverTheirBytesAreCut) {
  Writer records;
  const Record record{.group = 7, .sequence = 1ull << 40, .op = CommOp::all_gather, .count = 9, .counts = {4, 5}};
  record.encode(records);
  FrameSealer sealer(key_);
  std::string bytes;
  sealer.append({FrameType::records, 3, records.take()}, bytes);
  sealer.append({FrameType::heartbeat, 4, ""}, bytes);
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameBuffer buffer(key_);
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

TEST_F(Sealed, FramesOfEverySizeUpToTheLargest) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, kMostPayload}) {
    FrameSealer sealer(key_);
    std::string bytes;
    sealer.append({FrameType::records, 1, std::string(size, 'r')}, bytes);
    EXPECT_EQ(bytes.size(), kSealHeaderBytes + kHeaderBytes + size + 2 * kSealBytes);
    EXPECT_EQ(opened(bytes).first, std::vector<std::string>{std::string(size, 'r')});
  }
}

TEST_F(Sealed, ABitFlippedAnywhereIsNoticedInItsOwnFrame) {
  std::string before;
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    for (std::size_t bit = 0; bit < 8 * sealed_[i].size(); ++bit)
      expect_refused(before + with_flipped(sealed_[i], bit), i, fmt::format("frame {}, bit {}", i, bit));
    before += sealed_[i];
  }
}

TEST_F(Sealed, AFrameSentTwiceOrLeftOutOrOutOfOrderIsNoticed) {
  expect_refused(sealed_[0] + sealed_[1] + sealed_[1], 2, "twice");
  expect_refused(sealed_[0] + sealed_[2], 1, "left out");
  expect_refused(sealed_[0] + sealed_[2] + sealed_[1], 1, "out of order");
  expect_refused(sealed_[0] + sealed_[1] + sealed_[0].substr(kSealHeaderBytes), 2, "again later");
  expect_refused(sealed_[0] + sealed_[0], 1, "all again");
}

TEST_F(Sealed, AFrameCutShortNeverComes) {
  for (std::size_t size = 0; size < sealed_[0].size(); ++size) {
    EXPECT_TRUE(opened(sealed_[0].substr(0, size)).first.empty()) << size;
    if (size > kSealHeaderBytes)  // what follows does not make it whole
      expect_refused(sealed_[0].substr(0, size) + sealed_[1] + sealed_[2] + std::string(200, 'x'), 0,
                     fmt::format("cut at {}", size));
  }
}

TEST_F(Sealed, FramesOfAnotherConnectionOrDirectionAreNoticed) {
  FrameSealer same_key(key_), other_key(hash_of("another key"));
  std::string again, other;
  same_key.append(frames_[0], again);
  other_key.append(frames_[0], other);
  EXPECT_NE(again, sealed_[0]);  // under a new header
  expect_refused(other, 0, "another key");
  expect_refused(sealed_[0] + again.substr(kSealHeaderBytes), 1, "another stream of the same key");
}

// Between real ends.

TEST(ControlSealed, WhoListensOnTheWayReadsNothing) {
  const std::string secret = "what only the ranks may know";
  Coordinator coordinator(with_token());
  Eavesdropper way(coordinator.port());
  const auto words = words_of_each(2, [&](int rank) {
    SessionOptions options = place_of(coordinator, rank, 2);
    options.port = way.port();
    Session session(options);
    if (rank == 0) session.put("the key of it", secret);
    EXPECT_EQ(session.get("the key of it"), secret);
    session.leave();
  });
  EXPECT_THAT(words, ElementsAre("", ""));
  const std::string all = way.heard();
  EXPECT_GT(all.size(), 2 * (kGreetingBytes + kAnswerBytes + kVerdictBytes + 2 * kSealHeaderBytes));
  for (const std::string& text : {secret, std::string("the key of it"), std::string(kToken), host_name()})
    EXPECT_EQ(all.find(text), std::string::npos) << text;
  EXPECT_NE(all.find("LSCT"), std::string::npos) << "the recording is not of a handshake";
}

TEST(ControlSealed, AWholeConnectionSentAgainIsRefused) {
  std::vector<std::string> told;
  {
    Coordinator coordinator({.token = kToken, .notify = [&](const std::string& words) { told.push_back(words); }});
    Eavesdropper way(coordinator.port());
    SessionOptions options = place_of(coordinator, 0, 1);
    options.port = way.port();
    {
      Session session(options);
      session.leave();
    }
    const std::string ranks_part = way.heard_from_rank();
    ASSERT_GT(ranks_part.size(), kAnswerBytes + kSealHeaderBytes);
    Stranger again(coordinator);
    again.try_to_say(ranks_part);
    EXPECT_EQ(again.hear(kGreetingBytes + kVerdictBytes + 1000, 1).substr(kGreetingBytes), refusal());
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], HasSubstr("it has another token"));
}

// A rank whose connection somebody tampers with is lost by name, on both sides; whoever waits for it hears of it.
TEST(ControlSealed, ABitFlippedOnTheWayEndsTheConnectionAndIsTold) {
  for (const bool from_rank : {true, false}) {
    std::vector<std::string> told;
    {
      Coordinator coordinator({.token = kToken, .notify = [&](const std::string& words) { told.push_back(words); }});
      Eavesdropper way(coordinator.port());
      const auto words = words_of_each(2, [&](int rank) {
        SessionOptions options = place_of(coordinator, rank, 2, 5);
        if (rank == 1) options.port = way.port();
        Session session(options);
        session.barrier("in");
        if (rank == 1) way.flip_next(from_rank);
        session.get("what never comes", 5);
      });
      if (from_rank) {
        EXPECT_THAT(words[0], AllOf(HasSubstr("rank 1 (host"), HasSubstr(kDoesNotVerify)));
      } else {
        EXPECT_THAT(words[1], AllOf(HasSubstr("the coordinator at "), HasSubstr(kDoesNotVerify)));
        EXPECT_THAT(words[0], HasSubstr("rank 1 (host"));
      }
    }
    if (from_rank) {
      ASSERT_EQ(told.size(), 1u);
      EXPECT_THAT(told[0], AllOf(HasSubstr("a connection from 127.0.0.1 is given up"), HasSubstr(kDoesNotVerify)));
      EXPECT_THAT(told[0], Not(HasSubstr("\n")));
    }
  }
}

// Of one that has the token but is no member, nobody notices anything.
TEST(ControlSealed, AFrameThatDoesNotVerifyEndsItsOwnConnectionAlone) {
  std::vector<std::string> told;
  {
    Coordinator coordinator({.token = kToken, .notify = [&](const std::string& words) { told.push_back(words); }});
    const auto words = words_of_each(2, [&](int rank) {
      Session session(place_of(coordinator, rank, 2));
      session.barrier("in");
      if (rank == 0)
        for (int i = 0; i < 3; ++i) {
          Stranger stranger(coordinator);
          stranger.prove();
          const std::string frame = stranger.sealed({FrameType::join, 1, Join{0, 2, 1, "h", 1}.encode()});
          stranger.say(with_flipped(frame, static_cast<std::size_t>(8 * (40 + i))));
          EXPECT_LT(seconds_of([&] { EXPECT_EQ(stranger.hear(1000, 5), ""); }), 1);
        }
      session.barrier("out");
      EXPECT_FALSE(session.failed());
      session.leave();
    });
    EXPECT_THAT(words, ElementsAre("", ""));
  }
  EXPECT_EQ(told.size(), 1u);  // once per address
}

TEST(ControlSealed, BytesInTheClearCannotFollowTheHandshake) {
  Coordinator coordinator(with_token());
  std::string why_not;
  const Token token(kToken);
  auto stream = connect_secured("127.0.0.1", coordinator.port(), token, Clock::now() + seconds(5), why_not);
  ASSERT_TRUE(stream) << why_not;
  EXPECT_THAT(words_of([&] { stream->write("clear"); }), HasSubstr("in the clear"));
  EXPECT_THAT(words_of([&] { TcpStream(Socket()).write(Frame{}); }), HasSubstr("not secured"));
}

}  // namespace
}  // namespace lockstep::tests
