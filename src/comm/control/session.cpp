#include "comm/control/session.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "comm/control/membership.h"

namespace lockstep::control {

namespace {

constexpr int kRecordRoundMs = 20;    // how long records wait for company
constexpr double kGrace = 1;          // for the coordinator, which knows the deadline, to say who is missing
constexpr double kHandshakeTime = 2;  // of one attempt
constexpr std::size_t kMostOutgoingRecords = 1 << 20;  // then the coordinator does not read, and records wait

SessionOptions checked(SessionOptions options) {
  if (!(options.deadline_seconds >= kShortestDeadline && options.deadline_seconds <= kLongestDeadline))
    throw UserError(ExitCode::usage, fmt::format("a deadline of {} s", options.deadline_seconds),
                    fmt::format("give {} to {}", kShortestDeadline, kLongestDeadline));
  return options;
}

void check_name(const std::string& name) {
  LOCKSTEP_CHECK(name.size() <= kMostName, "a name of {} characters, {} are the most", name.size(), kMostName);
  for (const char c : name)
    LOCKSTEP_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a name with a control character");
}

}  // namespace

Session::Session(SessionOptions options)
    : options_(checked(std::move(options))),
      stream_(connect(Token(options_.token), Clock::now() + seconds(options_.deadline_seconds))),
      heard_(Clock::now()) {
  const Join join{.rank = rank(),
                  .size = size(),
                  .deadline = deadline(),
                  .host = host_name(),
                  .process = static_cast<std::uint32_t>(::getpid())};
  outgoing_.push_back({FrameType::join, epoch(), join.encode()});
  thread_ = std::jthread([this] { run(); });
  try {
    Lock lock(mutex_);
    changed_.wait_for(lock, seconds(deadline() + kGrace), [this] { return state_.welcome || state_.failure; });
    if (!state_.welcome && state_.failure) state_.failure->raise();
    if (!state_.welcome)
      throw CommError(fmt::format("{} has not answered rank {} within {} s", coordinator(), rank(), deadline()));
  } catch (...) {
    stop_ = true;
    waker_.wake();
    throw;
  }
}

Session::~Session() {
  stop_ = true;
  waker_.wake();
}

TcpStream Session::connect(const Token& token, Clock::time_point deadline) const {
  std::string why_not = "no answer";
  do {
    const auto until = std::min(deadline, Clock::now() + seconds(kHandshakeTime));
    try {
      if (auto stream = connect_secured(options_.address, options_.port, token, until, why_not))
        return std::move(*stream);
    } catch (const CommError& error) {
      throw CommError(fmt::format("{}, port {}: {}", options_.address, options_.port, error.what()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < deadline);
  throw CommError(
      fmt::format("rank {} cannot reach the coordinator at {}, port {} within {} s ({}); start it, or mend "
                  "the address",
                  rank(), options_.address, options_.port, options_.deadline_seconds, why_not));
}

std::string Session::coordinator() const {
  return fmt::format(
      "the coordinator at {}, port {}{}", options_.address, options_.port,
      state_.welcome && state_.welcome->host_rank >= 0 ? ", in the process of " + state_.welcome->who + "," : "");
}

void Session::put(const std::string& key, const std::string& value) {
  LOCKSTEP_CHECK(value.size() <= kMostBlob, "a value of {} bytes, {} are the most", value.size(), kMostBlob);
  ask(Ask::Kind::put, key, value, deadline());
}

std::string Session::get(const std::string& key, double deadline_seconds) {
  return ask(Ask::Kind::get, key, "", deadline_seconds);
}

void Session::barrier(const std::string& name, double deadline_seconds) {
  ask(Ask::Kind::barrier, name, "", deadline_seconds);
}

std::string Session::whereabouts(const Record& about) {
  Writer writer;
  about.encode(writer);
  return ask(Ask::Kind::whereabouts, "", writer.take(), std::min(deadline(), 1.0));
}

std::string Session::ask(Ask::Kind kind, const std::string& name, std::string value, double deadline_seconds) {
  check_name(name);
  deadline_seconds = std::clamp(deadline_seconds, kShortestDeadline, kLongestDeadline);
  Lock lock(mutex_);
  if (state_.failure) state_.failure->raise();
  LOCKSTEP_CHECK(!state_.left, "rank {} asks something after it has left", rank());
  const std::uint32_t number = ++asked_;
  const auto at = state_.asks.try_emplace(number).first;
  enqueue(FrameType::ask, Ask{kind, number, deadline_seconds, name, std::move(value)}.encode());
  waker_.wake();
  changed_.wait_for(lock, seconds(deadline_seconds + kGrace), [&] { return at->second || state_.failure; });
  const std::optional<Reply> reply = std::move(at->second);
  state_.asks.erase(at);
  if (reply && reply->well) return reply->value;
  if (state_.failure) state_.failure->raise();
  throw CommError(fmt::format(
      "rank {}: {}", rank(),
      reply ? reply->value : fmt::format("{} has not answered within {} s", coordinator(), deadline_seconds)));
}

std::uint32_t Session::open_group(const std::string& key, const std::string& name, std::vector<int> members) {
  check_name(key);
  check_name(name);
  const Lock lock(mutex_);
  const std::uint32_t id = ++groups_;
  enqueue(FrameType::open_group, GroupSpec{id, key, name, std::move(members)}.encode());
  return id;
}

std::string Session::next_world_key() {
  const Lock lock(mutex_);
  return fmt::format("world {}", ++worlds_);
}

void Session::close_group(std::uint32_t group) noexcept {
  try {
    const Lock lock(mutex_);
    if (!state_.left) enqueue(FrameType::close_group, Writer().number(group).take());
  } catch (const std::exception&) {  // no memory: the others learn it when this rank leaves
  }
}

void Session::report(Record record) {
  const Lock lock(mutex_);
  if (records_.size() >= kMostQueued) records_.pop_front();
  records_.push_back(std::move(record));
}

void Session::enqueue(FrameType type, std::string payload) {
  flush_records();  // they came before
  outgoing_.push_back({type, epoch(), std::move(payload)});
}

void Session::flush_records() {
  Writer writer;
  while (!records_.empty()) {
    if (writer.size() + records_.front().bytes() > kMostPayload)
      outgoing_.push_back({FrameType::records, epoch(), writer.take()});
    records_.front().encode(writer);
    records_.pop_front();
  }
  if (writer.size() > 0) outgoing_.push_back({FrameType::records, epoch(), writer.take()});
}

void Session::end_epoch(CommFailure failure) noexcept {
  try {
    const Lock lock(mutex_);
    if (state_.failure || state_.left) return;
    enqueue(FrameType::failed, encode_failure(failure));
    failure.secondary = false;  // here it is the cause
    set_failure(std::move(failure));
    waker_.wake();
  } catch (const std::exception&) {  // no memory: the others will see the connection closed
  }
}

void Session::set_failure(CommFailure failure) {
  if (!state_.fail(std::move(failure))) return;
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Session::throw_failure() const {
  const Lock lock(mutex_);
  state_.failure->raise();
}

bool Session::fails_within(double at_most_seconds) const {
  Lock lock(mutex_);
  return changed_.wait_for(lock, seconds(at_most_seconds), [this] { return state_.failure.has_value(); });
}

void Session::leave() {
  {
    const Lock lock(mutex_);
    if (state_.left || state_.failure) return;
  }
  try {
    ask(Ask::Kind::leave, "", "", std::min(deadline(), 1.0));
  } catch (const CommError&) {  // a failure of the others, which is no longer this rank's concern
  }
  const Lock lock(mutex_);
  state_.left = true;
}

void Session::run() {
  auto last = Clock::now();
  bool late = false;
  try {
    while (!stop_ && round()) {
      // As the coordinator does: the time in which this process was stopped itself does not count.
      const auto gap = seconds_since(std::exchange(last, Clock::now()));
      late = !late && gap > kLongRound;
      if (late) heard_ += seconds(gap);
      if (seconds_since(heard_) < deadline()) continue;
      const Lock lock(mutex_);
      set_failure({fmt::format("{} has not been heard from for {:.1f} s", coordinator(), seconds_since(heard_))});
    }
    std::vector<Frame> last_words;
    {
      const Lock lock(mutex_);
      last_words = std::exchange(outgoing_, {});
    }
    for (const Frame& frame : last_words) stream_.write(frame);
    stream_.finish(0.3);
  } catch (const std::exception& error) {
    const Lock lock(mutex_);
    set_failure({fmt::format("{}: {}", coordinator(), error.what())});
  }
  stream_ = TcpStream(Socket());
}

// False: the connection is no more.
bool Session::round() {
  pollfd polled[2] = {{stream_.descriptor(), static_cast<short>(POLLIN | (stream_.wants_to_write() ? POLLOUT : 0)), 0},
                      {waker_.descriptor(), POLLIN, 0}};
  ::poll(polled, 2, kRecordRoundMs);
  if (polled[1].revents) waker_.clear();
  std::string bytes;
  const bool open = stream_.read(bytes);
  stream_.frames.feed(bytes);
  while (const std::optional<Frame> frame = stream_.frames.next()) {
    heard_ = Clock::now();  // bytes that do not verify are no sign of life
    if (frame->epoch == epoch()) take(*frame);
  }
  if (!open) {
    const Lock lock(mutex_);
    set_failure({fmt::format("{} closed its connection", coordinator())});
    return false;
  }
  // Sealed without the mutex: those who report wait for nothing.
  if (stream_.waiting() < kMostOutgoingRecords)
    for (const Frame& frame : take_outgoing()) stream_.write(frame);
  if (seconds_since(spoke_) >= heartbeat_interval(deadline())) {
    spoke_ = Clock::now();
    stream_.write(Frame{FrameType::heartbeat, epoch(), ""});
  }
  stream_.flush();
  return true;
}

void Session::take(const Frame& frame) {
  const Lock lock(mutex_);
  state_.take(frame);
  if (state_.failure) failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

std::vector<Frame> Session::take_outgoing() {
  const Lock lock(mutex_);
  flush_records();
  return std::exchange(outgoing_, {});
}

}  // namespace lockstep::control
