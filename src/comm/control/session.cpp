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
  outgoing_ = encode({FrameType::join, epoch(), join.encode()});
  thread_ = std::jthread([this] { run(); });
  try {
    Lock lock(mutex_);
    changed_.wait_for(lock, seconds(deadline() + kGrace), [this] { return welcome_ || failure_; });
    if (!welcome_ && failure_) failure_->raise();
    if (!welcome_)
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
    if (Socket socket = connect_to(options_.address, options_.port, until, why_not)) {
      TcpStream stream(std::move(socket));
      RankHandshake handshake(token);
      try {
        const std::string greeting = read_exactly(stream.socket(), kGreetingBytes, until);
        if (greeting.size() == kGreetingBytes) {
          stream.write(handshake.answer(greeting));
          stream.flush();
          const std::string verdict = read_exactly(stream.socket(), kVerdictBytes, until);
          if (verdict.size() == kVerdictBytes) {
            handshake.check(verdict);
            return stream;
          }
        }
        why_not = "it closes the connection, or says nothing";  // it may be overrun by others: once more
      } catch (const CommError& error) {
        throw CommError(fmt::format("{}, port {}: {}", options_.address, options_.port, error.what()));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < deadline);
  throw CommError(
      fmt::format("rank {} cannot reach the coordinator at {}, port {} within {} s ({}); start it, or mend "
                  "the address",
                  rank(), options_.address, options_.port, options_.deadline_seconds, why_not));
}

std::string Session::coordinator() const {
  return fmt::format("the coordinator at {}, port {}{}", options_.address, options_.port,
                     welcome_ && welcome_->host_rank >= 0 ? ", in the process of " + welcome_->who + "," : "");
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
  if (failure_) failure_->raise();
  LOCKSTEP_CHECK(!left_, "rank {} asks something after it has left", rank());
  const std::uint32_t number = ++asked_;
  const auto at = asks_.try_emplace(number).first;
  enqueue(FrameType::ask, Ask{kind, number, deadline_seconds, name, std::move(value)}.encode());
  waker_.wake();
  changed_.wait_for(lock, seconds(deadline_seconds + kGrace), [&] { return at->second || failure_; });
  const std::optional<Reply> reply = std::move(at->second);
  asks_.erase(at);
  if (reply && reply->well) return reply->value;
  if (failure_) failure_->raise();
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
    if (!left_) enqueue(FrameType::close_group, Writer().number(group).take());
  } catch (const std::exception&) {  // no memory: the others learn it when this rank leaves
  }
}

void Session::report(Record record) {
  const Lock lock(mutex_);
  if (records_.size() >= kMostQueued) records_.pop_front();
  records_.push_back(std::move(record));
}

void Session::enqueue(FrameType type, std::string payload) {
  seal_records();  // they came before
  outgoing_ += encode({type, epoch(), std::move(payload)});
}

void Session::seal_records() {
  Writer writer;
  while (!records_.empty()) {
    if (writer.size() + records_.front().bytes() > kMostPayload)
      outgoing_ += encode({FrameType::records, epoch(), writer.take()});
    records_.front().encode(writer);
    records_.pop_front();
  }
  if (writer.size() > 0) outgoing_ += encode({FrameType::records, epoch(), writer.take()});
}

void Session::end_epoch(CommFailure failure) noexcept {
  try {
    const Lock lock(mutex_);
    if (failure_ || left_) return;
    enqueue(FrameType::failed, encode_failure(failure));
    failure.secondary = false;  // here it is the cause
    set_failure(std::move(failure));
    waker_.wake();
  } catch (const std::exception&) {  // no memory: the others will see the connection closed
  }
}

void Session::set_failure(CommFailure failure) {
  if (failure_ || left_) return;
  failure_ = std::move(failure);
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Session::throw_failure() const {
  const Lock lock(mutex_);
  failure_->raise();
}

bool Session::fails_within(double at_most_seconds) const {
  Lock lock(mutex_);
  return changed_.wait_for(lock, seconds(at_most_seconds), [this] { return failure_.has_value(); });
}

void Session::leave() {
  {
    const Lock lock(mutex_);
    if (left_ || failure_) return;
  }
  try {
    ask(Ask::Kind::leave, "", "", std::min(deadline(), 1.0));
  } catch (const CommError&) {  // a failure of the others, which is no longer this rank's concern
  }
  const Lock lock(mutex_);
  left_ = true;
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
    {
      const Lock lock(mutex_);
      stream_.write(std::exchange(outgoing_, {}));
    }
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
  if (!bytes.empty()) heard_ = Clock::now();
  stream_.frames.feed(bytes);
  while (const std::optional<Frame> frame = stream_.frames.next())
    if (frame->epoch == epoch()) handle(*frame);
  const Lock lock(mutex_);
  if (!open) {
    set_failure({fmt::format("{} closed its connection", coordinator())});
    return false;
  }
  if (stream_.waiting() < kMostOutgoingRecords) {
    seal_records();
    stream_.write(std::exchange(outgoing_, {}));
  }
  if (seconds_since(spoke_) >= heartbeat_interval(deadline())) {
    spoke_ = Clock::now();
    stream_.write(Frame{FrameType::heartbeat, epoch(), ""});
  }
  stream_.flush();
  return true;
}

void Session::handle(const Frame& frame) {
  const Lock lock(mutex_);
  switch (frame.type) {
    case FrameType::heartbeat:
      return;
    case FrameType::welcome:
      welcome_ = Welcome::decode(frame.payload);
      break;
    case FrameType::refused:
    case FrameType::failed:
      return set_failure(decode_failure(frame.payload));
    case FrameType::reply: {
      Reply reply = Reply::decode(frame.payload);
      const auto at = asks_.find(reply.number);
      if (at != asks_.end()) at->second = std::move(reply);  // else it came too late
      break;
    }
    default:
      throw CommError(fmt::format("a frame of type {} from a coordinator", static_cast<int>(frame.type)));
  }
  changed_.notify_all();
}

}  // namespace lockstep::control
