#include "comm/control/listener.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "comm/error.h"

namespace lockstep::control {

Listener::Listener(ListenerOptions options)
    : notify_(std::move(options.notify)),
      token_(options.token),
      listening_(listen_on(options.address, options.port)),
      address_(address_of(listening_)),
      port_(port_of(listening_)) {}

void Listener::watch(std::vector<pollfd>& polled) {
  watched_from_ = polled.size();
  polled.push_back({listening_.descriptor(), static_cast<short>(Clock::now() < full_until_ ? 0 : POLLIN), 0});
  for (const Stranger& stranger : strangers_) polled.push_back({stranger.stream.descriptor(), POLLIN, 0});
}

std::vector<Listener::Arrival> Listener::serve(std::span<const pollfd> polled) {
  std::vector<Arrival> arrivals;
  auto at = polled.begin() + static_cast<std::ptrdiff_t>(watched_from_);
  const bool newcomers = (at++)->revents != 0;
  for (Stranger& stranger : strangers_) {
    if ((at++)->revents) hear(stranger, arrivals);
    if (seconds_since(stranger.since) > kUnprovenTime) stranger.gone = true;
  }
  strangers_.remove_if([](const Stranger& stranger) { return stranger.gone; });
  if (newcomers) accept_all();
  return arrivals;
}

void Listener::hear(Stranger& stranger, std::vector<Arrival>& arrivals) {
  if (stranger.refused) {  // it may read that it is, and then goes
    std::string ignored;
    stranger.gone = !stranger.stream.read(ignored, kAnswerBytes);
    return;
  }
  const bool open = stranger.stream.read(stranger.answer, kAnswerBytes - stranger.answer.size());
  if (!open) stranger.gone = true;
  if (stranger.answer.size() < kAnswerBytes) return;
  const auto verdict = stranger.handshake.verdict(stranger.answer);
  if (!verdict) return refuse(stranger);
  stranger.stream.write(verdict->bytes);
  stranger.stream.secure(verdict->keys);
  stranger.stream.flush();
  stranger.gone = true;  // from here
  if (open) arrivals.push_back({std::move(stranger.stream), stranger.from});
}

void Listener::refuse(Stranger& stranger) {
  constexpr std::size_t kMostAddresses = 1024;
  report(Trouble::wrong_token, stranger.from,
         fmt::format("a connection from {} was refused: it has another token", stranger.from));
  if (seconds_since(refusals_since_) >= 1) {
    refusals_since_ = Clock::now();
    refusals_.clear();
  }
  stranger.refused = true;
  if (refusals_.size() >= kMostAddresses || ++refusals_[stranger.from] > kMostRefusals) {
    stranger.gone = true;
    return;
  }
  stranger.stream.write(refusal());
  stranger.stream.flush();
}

void Listener::accept_all() {
  constexpr int kMost = 64;  // then those who are in have their turn
  for (int i = 0; i < kMost; ++i) {
    if (strangers_.size() >= kMostUnproven && !make_room()) return;
    std::string from;
    Socket socket = accept_from(listening_, from);
    if (!socket) {
      if ((errno == EMFILE || errno == ENFILE) && !make_room()) full_until_ = Clock::now() + seconds(kTimeToAnswer);
      return;
    }
    strangers_.push_back(
        {.stream = TcpStream(std::move(socket)), .handshake = CoordinatorHandshake(token_), .from = from});
    strangers_.back().stream.write(strangers_.back().handshake.greeting());
    strangers_.back().stream.flush();
  }
}

// The address with most strangers gives up its oldest, unless even that one is so new that it could not have answered.
bool Listener::make_room() {
  std::map<std::string_view, int> count;
  for (const Stranger& stranger : strangers_) ++count[stranger.from];
  const auto most =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == count.end()) return false;
  const auto oldest = std::find_if(strangers_.begin(), strangers_.end(),
                                   [&](const Stranger& stranger) { return stranger.from == most->first; });
  if (!oldest->refused && seconds_since(oldest->since) < kTimeToAnswer) {
    full_until_ = oldest->since + seconds(kTimeToAnswer);
    return false;
  }
  strangers_.erase(oldest);
  return true;
}

void Listener::report(Trouble trouble, const std::string& from, const std::string& words) {
  constexpr std::size_t kMostReported = 64;
  std::set<std::string>& reported = reported_[trouble];
  if (!notify_ || reported.size() >= kMostReported || !reported.insert(from).second) return;
  try {
    notify_(words);
  } catch (...) {  // whoever listens has no say here
  }
}

}  // namespace lockstep::control
