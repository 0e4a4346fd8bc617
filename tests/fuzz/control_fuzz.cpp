// What a peer with the token may send: any bytes at all, sealed as frames are, are either frames of ranks, and then an
// epoch of three takes them in its stride and all it sends can be read by a rank, or a CommError of one line. Without
// the token: control_stranger_fuzz.cpp. The input's first byte says how the stream is cut into pieces; each frame comes
// from the rank that its epoch's low bits say, since a fuzzer has no other way to play several.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "comm/control/frame_stream.h"
#include "comm/control/membership.h"
#include "comm/error.h"

namespace {

using namespace lockstep::control;

void require(bool claim) {
  if (!claim) std::abort();
}

constexpr int kRanks = 3;

const Secret& key() {
  static const Secret kKey = hash_of("a key of this fuzzer");
  return kKey;
}

// Headers and payloads as they are in the input, good or bad, sealed one by one.
std::string sealed_stream(std::string_view plain) {
  Sealer sealer(key());
  std::string sealed = sealer.header();
  while (!plain.empty()) {
    const std::string_view header = plain.substr(0, kHeaderBytes);
    plain.remove_prefix(header.size());
    sealer.seal(header, sealed);
    std::uint32_t length = 0;
    if (header.size() == kHeaderBytes) std::memcpy(&length, header.data() + 6, sizeof length);
    if (length > kMostPayload) return sealed;  // the header is the last that is read
    const std::string_view payload = plain.substr(0, length);
    plain.remove_prefix(payload.size());
    if (length > 0) sealer.seal(payload, sealed);
  }
  return sealed;
}

// What a payload says is what is read again from what it is written as.
template <class Payload>
void round_trip(const std::string& bytes) {
  require(Payload::decode(bytes).encode() == bytes);
}

void round_trip(const Frame& frame) {
  switch (frame.type) {
    case FrameType::ask:
      return round_trip<Ask>(frame.payload);
    case FrameType::reply:
      return round_trip<Reply>(frame.payload);
    case FrameType::open_group:
      return round_trip<GroupSpec>(frame.payload);
    case FrameType::failed:
    case FrameType::refused:
      return require(encode_failure(decode_failure(frame.payload)) == frame.payload);
    case FrameType::welcome:
      return round_trip<Welcome>(frame.payload);
    case FrameType::records: {
      Writer writer;
      for (const Record& record : decode_records(frame.payload)) {
        record.encode(writer);
        require(!describe(message_of(record, kRanks), kRanks).empty());
      }
      return require(writer.take() == frame.payload);
    }
    default:
      return;
  }
}

// One of the frames that a rank may send.
Frame frame_of(unsigned choice, unsigned rank) {
  const unsigned more = choice / 8;
  switch (choice % 8) {
    case 0:
      return {FrameType::open_group, rank, GroupSpec{more % 2, "w", "w", {0, 1, 2}}.encode()};
    case 1:
      return {FrameType::close_group, rank, Writer().number(more % 2).take()};
    case 2:
    case 3:
    case 4: {
      Writer writer;
      Record record{.group = 0, .sequence = 1 + more % 3, .op = static_cast<lockstep::CommOp>(more / 3 % 11)};
      record.done = more / 64 % 2;
      record.peer = static_cast<int>(more / 128 % kRanks);
      record.count = more / 512 % 2 * 3;
      if (more / 1024 % 4 == 0) record.counts = {1, 1, 1};
      record.encode(writer);
      if (choice % 8 == 4) return {FrameType::ask, rank, Ask{Ask::Kind::whereabouts, 1, 1, "", writer.take()}.encode()};
      return {FrameType::records, rank, writer.take()};
    }
    case 5:
    case 6:
      return {FrameType::ask, rank, Ask{static_cast<Ask::Kind>(more % 3), 1, 1, "k", "v"}.encode()};
    default:
      return {FrameType::ask, rank, Ask{Ask::Kind::leave, 1, 1, "", ""}.encode()};
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

// Frames that fit each other are beyond guessing: one mutation in four adds a whole one.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  if (seed % 4 != 0 || size == 0) return LLVMFuzzerMutate(data, size, most);
  const unsigned choice = seed / 4, rank = choice % kRanks;
  const Frame frame = frame_of(choice / kRanks, rank);
  const std::string added = header_of(frame).encode() + frame.payload;
  if (size + added.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data + size, added.data(), added.size());
  return size + added.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = data[0] + 1u;
  const std::string sealed = sealed_stream({reinterpret_cast<const char*>(data) + 1, size - 1});
  std::string_view rest = sealed;
  FrameBuffer frames(key());
  bool failed = false;
  Membership epoch(1, kRanks, [&](int rank, FrameType type, const std::string& payload) {
    require(rank >= 0 && rank < kRanks);
    require(payload.size() <= kMostPayload);
    round_trip({type, 1, payload});
    failed = failed || type == FrameType::failed;
  });
  for (int rank = 0; rank < kRanks; ++rank) epoch.join({.rank = rank, .size = kRanks, .deadline = 1000, .host = "h"});
  epoch.welcome_if_complete();
  require(epoch.complete());
  try {
    while (!rest.empty()) {
      frames.feed(rest.substr(0, piece));
      rest.remove_prefix(std::min(piece, rest.size()));
      while (const std::optional<Frame> frame = frames.next()) {
        require(frame->payload.size() <= kMostPayload);
        const int rank = static_cast<int>(frame->epoch % kRanks);
        if (frame->type == FrameType::join) {
          const Join join = Join::decode(frame->payload);
          require(!epoch.why_not(join).empty());  // all are there
        } else {
          epoch.take(rank, *frame);
          round_trip(*frame);
        }
        epoch.tick();
      }
    }
  } catch (const lockstep::CommError& error) {
    const std::string text = error.what();
    require(!text.empty() && text.find('\n') == std::string::npos && text.size() < 1000);
  }
  require(!epoch.failure() || failed || epoch.empty());
  return 0;
}
