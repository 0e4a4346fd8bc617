#include "comm/control/coordinator.h"

#include <poll.h>

#include <algorithm>

#include "comm/error.h"

namespace lockstep::control {

namespace {

constexpr double kFarewellTime = 0.3;
constexpr int kDeadlineRoundMs = 20;                 // how late a deadline is noticed
constexpr std::size_t kMostOutgoingToOne = 8 << 20;  // to one rank: it does not read

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : first_epoch_(options.epoch),
      listener_({.address = std::move(options.address),
                 .port = options.port,
                 .token = std::move(options.token),
                 .notify = std::move(options.notify)}),
      thread_([this] { run(); }) {}

Coordinator::~Coordinator() {
  stop_ = true;
  waker_.wake();
  thread_.join();
}

bool Coordinator::drain(double at_most_seconds) {
  std::unique_lock lock(mutex_);
  return drained_.wait_for(lock, seconds(at_most_seconds), [this] { return empty_; });
}

void Coordinator::run() {
  auto last = Clock::now();
  bool late = false;
  while (!stop_) {
    try {
      round(kDeadlineRoundMs);
      // While this process was stopped itself it could hear nobody: that time does not count. Never twice in a row, so
      // that silence is found on the busiest machine.
      const auto gap = seconds_since(std::exchange(last, Clock::now()));
      late = !late && gap > kLongRound;
      if (epoch_ && late) epoch_->excuse(gap);
      if (epoch_ && !late) epoch_->tick();
    } catch (const std::exception& error) {  // no memory, no descriptors: the next round may fare better
      listener_.report(Listener::Trouble::system, "this machine", fmt::format("the coordinator: {}", error.what()));
      std::this_thread::sleep_for(std::chrono::milliseconds(kDeadlineRoundMs));
    }
    sweep();
  }
  say_goodbye();
}

void Coordinator::round(int timeout_ms) {
  std::vector<pollfd> polled = {{waker_.descriptor(), POLLIN, 0}};
  for (const Peer& peer : peers_)
    polled.push_back(
        {peer.stream.descriptor(), static_cast<short>(POLLIN | (peer.stream.wants_to_write() ? POLLOUT : 0)), 0});
  listener_.watch(polled);
  if (::poll(polled.data(), polled.size(), timeout_ms) < 0) return;  // interrupted: the next round
  if (polled[0].revents) waker_.clear();
  auto at = polled.begin() + 1;
  for (Peer& peer : peers_)
    if ((at++)->revents & (POLLIN | POLLHUP | POLLERR)) listen_to(peer);
  for (Listener::Arrival& arrival : listener_.serve(polled))
    peers_.push_back({.stream = std::move(arrival.stream), .from = std::move(arrival.from)});
}

void Coordinator::listen_to(Peer& peer) {
  std::string bytes;
  const bool open = peer.stream.read(bytes);
  try {
    if (peer.stage != Peer::Stage::closing) peer.stream.frames.feed(bytes);
    while (peer.stage != Peer::Stage::closing) {
      const std::optional<Frame> frame = peer.stream.frames.next();
      if (!frame) break;
      if (peer.stage == Peer::Stage::proven) {
        admit(peer, *frame);
        continue;
      }
      epoch_->hear(peer.rank);  // bytes that do not verify are nobody's sign of life
      if (frame->epoch == epoch_->number()) epoch_->take(peer.rank, *frame);
    }
  } catch (const CommError& error) {
    listener_.report(Listener::Trouble::broken_frames, peer.from,
                     fmt::format("a connection from {} is given up: {}", peer.from, error.what()));
    lose(peer, fmt::format("sent what makes no sense ({})", error.what()));
  }
  if (!open) lose(peer, "closed its connection");
}

void Coordinator::admit(Peer& peer, const Frame& frame) {
  if (frame.type != FrameType::join) throw CommError("the first frame is not that of a rank that joins");
  const Join join = Join::decode(frame.payload);
  const std::string problem = why_not(join, frame.epoch);
  if (!problem.empty()) return dismiss(peer, {FrameType::refused, frame.epoch, encode_failure({problem})});
  if (!epoch_ || epoch_->number() != frame.epoch) begin(frame.epoch, join.size);
  peer.stage = Peer::Stage::member;
  peer.rank = join.rank;
  by_rank_[join.rank] = &peer;
  epoch_->join(join);
  epoch_->welcome_if_complete();
}

std::string Coordinator::why_not(const Join& join, std::uint32_t epoch) {
  if (join.size < 1 || join.size > kMostRanks)
    return fmt::format("a world of {} ranks; 1 to {} are supported", join.size, kMostRanks);
  if (join.rank < 0 || join.rank >= join.size)
    return fmt::format("rank {} is none of a world of {} ranks; they are 0 to {}", join.rank, join.size, join.size - 1);
  if (!epoch_) {
    if (epoch == first_epoch_) return "";
    return fmt::format("rank {} joins epoch {}, the first is {}; start all ranks together", join.rank, epoch,
                       first_epoch_);
  }
  const std::uint32_t now = epoch_->number();
  if (epoch == now) return epoch_->why_not(join);
  if (epoch < now)
    return fmt::format("rank {} joins epoch {}, which is over; {} is the current one", join.rank, epoch, now);
  if (epoch > now + 1)
    return fmt::format("rank {} joins epoch {}, {} is the current one; the next is {}", join.rank, epoch, now, now + 1);
  if (!epoch_->complete() && !epoch_->failure())
    return fmt::format("rank {} joins epoch {} while ranks still join epoch {}; wait until that has begun or failed",
                       join.rank, epoch, now);
  return "";
}

void Coordinator::begin(std::uint32_t epoch, int size) {
  for (Peer& peer : peers_)
    if (peer.stage == Peer::Stage::member)
      dismiss(peer,
              {FrameType::failed, epoch_->number(),
               encode_failure({fmt::format("epoch {} has begun, and {} is over", epoch, epoch_->number()), true})});
  by_rank_.clear();
  epoch_ = std::make_unique<Membership>(
      epoch, size, [this](int rank, FrameType type, const std::string& payload) { send(rank, type, payload); });
}

void Coordinator::send(int rank, FrameType type, const std::string& payload) {
  const auto at = by_rank_.find(rank);
  if (at == by_rank_.end()) return;
  at->second->stream.write(Frame{type, epoch_->number(), payload});
}

// It may read what it is told, and is then closed.
void Coordinator::dismiss(Peer& peer, const Frame& last) {
  peer.stream.write(last);
  peer.stage = Peer::Stage::closing;
  peer.rank = -1;
  peer.since = Clock::now();
}

void Coordinator::lose(Peer& peer, const std::string& how) {
  peer.gone = true;
  if (peer.stage != Peer::Stage::member) return;
  const int rank = std::exchange(peer.rank, -1);
  peer.stage = Peer::Stage::closing;
  by_rank_.erase(rank);
  epoch_->lost(rank, how);
}

void Coordinator::sweep() {
  for (Peer& peer : peers_) {
    peer.stream.flush();
    if (peer.stream.waiting() > kMostOutgoingToOne) lose(peer, "does not read what it is sent");
    if (peer.stage != Peer::Stage::member && seconds_since(peer.since) > Listener::kUnprovenTime) peer.gone = true;
  }
  for (Peer& peer : peers_) peer.stream.flush();  // what those that were lost have brought about
  peers_.remove_if([](const Peer& peer) { return peer.gone; });
  const std::lock_guard lock(mutex_);
  empty_ = !epoch_ || epoch_->empty();
  if (empty_) drained_.notify_all();
}

void Coordinator::say_goodbye() noexcept {
  try {
    round(0);  // the last words of a rank of this very process
    if (epoch_ && !epoch_->empty())
      epoch_->fail({fmt::format("the coordinator at {}, port {} has ended", address(), port()), true});
    const auto until = Clock::now() + seconds(kFarewellTime);
    const auto waiting = [](const Peer& peer) { return peer.stream.wants_to_write(); };
    do {
      for (Peer& peer : peers_) peer.stream.flush();
      if (std::none_of(peers_.begin(), peers_.end(), waiting)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (Clock::now() < until);
    for (Peer& peer : peers_) peer.stream.finish(std::max(0.0, -seconds_since(until)));
  } catch (const std::exception&) {  // they will find it closed
  }
}

}  // namespace lockstep::control
