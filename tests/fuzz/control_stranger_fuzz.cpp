// What a peer without the token may send, to either end: whatever it is, nobody is let in, nothing comes out of a
// sealed stream, and what is said of it is a CommError of one line. The input's first byte chooses the part of the
// exchange. The rest of it is what the stranger sends or, in every other part, what he changes in a recording of two
// who know the token (a xor).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "comm/control/frame_stream.h"
#include "comm/control/handshake.h"
#include "comm/error.h"

namespace {

using namespace lockstep::control;

void require(bool claim) {
  if (!claim) std::abort();
}

std::string changed(std::string recording, std::string_view how) {
  for (std::size_t i = 0; i < std::min(recording.size(), how.size()); ++i)
    recording[i] = static_cast<char>(recording[i] ^ how[i]);
  return recording;
}

template <class Body>
bool refused(const Body& body) {
  try {
    body();
    return false;
  } catch (const lockstep::CommError& error) {
    const std::string text = error.what();
    require(!text.empty() && text.find('\n') == std::string::npos && text.size() < 1000);
    return true;
  }
}

// Two who know the token, once: what each has sent.
struct Recording {
  Token token{"a token that only this fuzzer knows"};
  CoordinatorHandshake coordinator{token};
  RankHandshake rank{token};
  std::string greeting = coordinator.greeting();
  std::string answer = rank.answer(greeting);
  CoordinatorHandshake::Verdict verdict = *coordinator.verdict(answer);
  std::string frames;
  std::size_t count = 0;

  Recording() {
    FrameSealer sealer(verdict.keys.sending);
    for (const std::size_t bytes : {0u, 1u, 300u}) {
      sealer.append({FrameType::reply, 1, std::string(bytes, 'p')}, frames);
      ++count;
    }
  }
};

const Recording& recording() {
  static const Recording kRecording;
  return kRecording;
}

void as_answer(const std::string& bytes) {
  const auto verdict = recording().coordinator.verdict(bytes);
  require(verdict.has_value() == (bytes == recording().answer));
}

// A rank answers whoever greets it as a coordinator of this version does, and believes nobody's verdict. It waits until
// all of a greeting has come (comm/control/connector.h).
void as_greeting(std::string bytes) {
  bytes.resize(kGreetingBytes);
  RankHandshake rank(recording().token);
  std::string answer;
  const bool is_greeting = bytes.substr(0, kGreetingStart) == recording().greeting.substr(0, kGreetingStart);
  require(refused([&] {
            RankHandshake::check_start(std::string_view(bytes).substr(0, kGreetingStart));
            answer = rank.answer(bytes);
          }) != is_greeting);
  require(answer.size() == (is_greeting ? kAnswerBytes : 0));
}

void as_verdict(const std::string& bytes) {
  SessionKeys keys;
  require(refused([&] { keys = recording().rank.keys(bytes); }) == (bytes != recording().verdict.bytes));
}

// Frames come out of what was recorded, in its order, up to the first byte that is not as it was.
void as_stream(std::string_view bytes, std::size_t piece) {
  FrameBuffer buffer(recording().verdict.keys.sending);
  std::size_t count = 0, fed = 0;
  refused([&] {
    while (!bytes.empty()) {
      buffer.feed(bytes.substr(0, piece));
      fed += std::min(piece, bytes.size());
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (const auto frame = buffer.next()) {
        require(frame->type == FrameType::reply && ++count <= recording().count);
        require(frame->payload == std::string(count == 1 ? 0 : count == 2 ? 1 : 300, 'p'));
      }
    }
  });
  const bool whole = fed >= recording().frames.size();
  require(count < recording().count || whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      as_answer(std::string(bytes));
      break;
    case 1:
      as_answer(changed(recording().answer, bytes));
      break;
    case 2:
      as_greeting(std::string(bytes));
      break;
    case 3:
      as_greeting(changed(recording().greeting, bytes));
      break;
    case 4:
      as_verdict(std::string(bytes));
      break;
    case 5:
      as_verdict(changed(recording().verdict.bytes, bytes));
      break;
    case 6:
      as_stream(bytes, data[0] / 8 + 1u);
      break;
    default:
      as_stream(changed(recording().frames, bytes), data[0] / 8 + 1u);
      break;
  }
  return 0;
}
