// What the coordinator and the ranks tell each other once they know each other (comm/control/handshake.h).
//
// A frame is a header of 10 bytes, little-endian whatever the machine, and a payload:
//
//   type u16 | epoch u32 | length u32
//
// Both are sealed on their way (comm/control/frame_stream.h). Payloads are written with Writer and read with Reader:
// integers of fixed width, texts after their length. Everything read is held to its limits before it is used, and a
// frame that breaks one is a CommError of one line; whoever gets it gives up the connection. Nothing is allocated from
// a length that has not been checked. Values; any thread.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/error.h"
#include "comm/message.h"

namespace lockstep::control {

inline constexpr std::size_t kHeaderBytes = 10;
inline constexpr std::size_t kMostBlob = 64 << 10;                // bytes of a value
inline constexpr std::size_t kMostPayload = kMostBlob + 1024;     // a value and its key
inline constexpr std::size_t kMostName = 256, kMostWords = 4096;  // longer words are cut short
inline constexpr int kMostRanks = 4096;
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 56;
inline constexpr double kShortestDeadline = 0.05, kLongestDeadline = 86400;

enum class FrameType : std::uint16_t {
  // from a rank
  join = 1,
  ask,          // put, get, barrier, whereabouts or leave; a reply follows
  open_group,   // the groups that records are about
  close_group,  // the rank calls nothing more in it
  records,
  failed,  // the epoch is over, and why
  // from the coordinator
  welcome,  // all have come
  refused,  // this rank may not join, and why
  reply,
  // both ways: only says that it is there
  heartbeat,
  agent,  // between agents of `lockstep launch` (launch/agent_message.h); a coordinator and its ranks never send it
};
inline constexpr int kFrameTypes = 11;

struct Frame {
  FrameType type = FrameType::heartbeat;
  std::uint32_t epoch = 0;
  std::string payload = {};
};

struct FrameHeader {
  FrameType type = FrameType::heartbeat;
  std::uint32_t epoch = 0, length = 0;
  std::string encode() const;
  static FrameHeader decode(std::string_view bytes);  // CommError
};
FrameHeader header_of(const Frame& frame);

class Writer {
 public:
  template <class Integer>
  Writer& number(Integer value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      text_ += static_cast<char>(static_cast<std::uint64_t>(value) >> 8 * i);
    return *this;
  }
  Writer& text(std::string_view value, std::size_t most);  // longer ones are cut
  Writer& seconds(double value) { return number(static_cast<std::uint64_t>(std::llround(value * 1e6))); }
  std::string take() { return std::move(text_); }
  std::size_t size() const { return text_.size(); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class Integer>
  Integer number() {
    const std::string_view raw = bytes(sizeof(Integer));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(raw[i])) << 8 * i;
    return static_cast<Integer>(value);
  }
  template <class Integer>
  Integer number(Integer least, Integer most, const char* what) {
    const Integer value = number<Integer>();
    if (value < least || value > most) out_of_range(what, static_cast<std::int64_t>(value));
    return value;
  }
  std::string text(std::size_t most, const char* what);
  std::string name(const char* what);  // one that can be shown: no control characters
  double deadline();
  bool empty() const { return bytes_.empty(); }
  void end() const;  // nothing may be left

 private:
  std::string_view bytes(std::size_t count);
  [[noreturn]] static void out_of_range(const char* what, std::int64_t value);

  std::string_view bytes_;
};

// The payloads. Each knows its own bytes; decode throws CommError.

struct Join {
  int rank = 0, size = 0;
  double deadline = 0;  // seconds, of everything the rank waits for
  std::string host = {};
  std::uint32_t process = 0;
  std::string encode() const;
  static Join decode(std::string_view bytes);
};

struct Ask {
  enum class Kind : std::uint8_t { put, get, barrier, whereabouts, leave };
  Kind kind = Kind::get;
  std::uint32_t number = 0;  // the reply has the same
  double deadline = 0;
  std::string name = {};  // a key, or a barrier's
  std::string value = {};
  std::string encode() const;
  static Ask decode(std::string_view bytes);
};

struct Reply {
  std::uint32_t number = 0;
  bool well = true;
  std::string value = {};  // or the words
  std::string encode() const;
  static Reply decode(std::string_view bytes);
};

struct GroupSpec {
  std::uint32_t id = 0;   // the rank's own number of the group
  std::string key = {};   // the same on all its ranks, and of no other group
  std::string name = {};  // for words
  std::vector<int> members = {};
  std::string encode() const;
  static GroupSpec decode(std::string_view bytes);
};

// One call of one rank: what comm/message.h compares, without the tensors.
struct Record {
  std::uint32_t group = 0;
  std::uint64_t sequence = 0;
  CommOp op = CommOp::barrier;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  Algorithm algorithm = Algorithm::canonical;
  bool done = false;  // else: started
  int peer = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> counts = {};
  void encode(Writer& writer) const;
  static Record decode(Reader& reader);
  std::size_t bytes() const { return 33 + 8 * counts.size(); }
};
std::vector<Record> decode_records(std::string_view bytes);
// A message that describes and compares as the call did (meta tensors).
Message message_of(const Record& record, int ranks);

std::string encode_failure(const CommFailure& failure);
CommFailure decode_failure(std::string_view bytes);

struct Welcome {
  int host_rank = -1;  // whose process the coordinator is in; -1: a process of its own
  std::string who = {};
  std::string encode() const;
  static Welcome decode(std::string_view bytes);
};

}  // namespace lockstep::control
