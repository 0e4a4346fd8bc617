#include "launch/agent_link.h"

#include <fmt/format.h>
#include <unistd.h>

#include "comm/error.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostOutgoing = 8 << 20;  // to one agent: it does not read

control::Frame frame_of(const AgentMessage& message) { return {control::FrameType::agent, 0, to_text(message)}; }

AgentMessage message_of(const control::Frame& frame) {
  if (frame.type != control::FrameType::agent) throw CommError("it sends what no agent sends");
  return parse_agent_message(frame.payload);
}

}  // namespace

AgentLink::AgentLink(AgentFolder& folder, const std::string& address, std::function<void(const std::string&)> tell)
    : folder_(folder),
      token_text_(folder.token()),
      token_(token_text_),
      listener_({.address = address, .token = token_text_, .notify = std::move(tell)}) {
  folder_.write_endpoint({.address = listener_.address(), .port = listener_.port(), .process = ::getpid()});
}

std::string AgentLink::connect(int agent, const AgentMessage& join, double seconds) {
  const auto endpoint = folder_.endpoint_of(agent);
  if (!endpoint) return "it has not come yet";
  std::string why_not;
  std::optional<control::TcpStream> stream;
  try {
    stream = control::connect_secured(endpoint->address, endpoint->port, token_,
                                      Clock::now() + control::seconds(seconds), why_not);
  } catch (const CommError& error) {  // another program has the port now
    return error.what();
  }
  if (!stream) return why_not;
  stream->write(frame_of(join));
  stream->flush();
  peers_.erase(agent);
  peers_.emplace(agent, Peer{.stream = std::move(*stream)});
  return "";
}

void AgentLink::watch(std::vector<pollfd>& polled) {
  const auto add = [&](const control::TcpStream& stream) {
    polled.push_back({stream.descriptor(), static_cast<short>(POLLIN | (stream.wants_to_write() ? POLLOUT : 0)), 0});
  };
  for (const auto& [agent, peer] : peers_) add(peer.stream);
  for (const Guest& guest : guests_) add(guest.stream);
  listener_.watch(polled);
}

void AgentLink::serve(std::span<const pollfd> polled) {
  for (control::Listener::Arrival& arrival : listener_.serve(polled))
    guests_.push_back({.stream = std::move(arrival.stream), .from = arrival.from});
  for (Guest& guest : guests_) hear(guest);
  guests_.remove_if([](const Guest& guest) { return guest.gone; });
  std::vector<int> agents;
  for (const auto& [agent, peer] : peers_) agents.push_back(agent);
  for (const int agent : agents)
    if (const auto at = peers_.find(agent); at != peers_.end()) hear(agent, at->second);
  flush();
}

// Its first message says who it is; who was there by that number before is no more.
void AgentLink::hear(Guest& guest) {
  std::string bytes;
  bool open = guest.stream.read(bytes);
  try {
    guest.stream.frames.feed(bytes);
    if (const auto frame = guest.stream.frames.next()) {
      AgentMessage message = message_of(*frame);
      if (message.kind != AgentMessageKind::join) throw CommError("its first message does not say who it is");
      const int agent = message.agent;
      peers_.erase(agent);
      peers_.emplace(agent, Peer{.stream = std::move(guest.stream)});
      inbox_.push_back({agent, std::move(message)});
      guest.gone = true;
      return;
    }
  } catch (const CommError& error) {
    listener_.report(control::Listener::Trouble::broken_frames, guest.from,
                     fmt::format("a connection from {} is given up: {}", guest.from, error.what()));
    open = false;
  }
  guest.gone = !open || control::seconds_since(guest.since) > control::Listener::kUnprovenTime;
}

void AgentLink::hear(int agent, Peer& peer) {
  std::string bytes;
  const bool open = peer.stream.read(bytes);
  if (!bytes.empty()) peer.heard = Clock::now();
  try {
    peer.stream.frames.feed(bytes);
    while (const auto frame = peer.stream.frames.next()) inbox_.push_back({agent, message_of(*frame)});
  } catch (const CommError& error) {
    return lose(agent, fmt::format("it sent what makes no sense ({})", error.what()));
  }
  if (!open) return lose(agent, "its agent closed the connection");
  if (peer.stream.waiting() > kMostOutgoing) lose(agent, "its agent does not read what it is sent");
}

void AgentLink::flush() {
  for (auto& [agent, peer] : peers_) peer.stream.flush();
}

void AgentLink::send(int agent, const AgentMessage& message) {
  const auto at = peers_.find(agent);
  if (at == peers_.end()) return;
  at->second.stream.write(frame_of(message));
  at->second.stream.flush();
}

void AgentLink::drop(int agent) {
  const auto at = peers_.find(agent);
  if (at == peers_.end()) return;
  at->second.stream.finish(0.2);
  peers_.erase(at);
}

void AgentLink::lose(int agent, const std::string& how) {
  peers_.erase(agent);
  lost_.push_back({agent, how});
}

double AgentLink::silence_of(int agent) const {
  const auto at = peers_.find(agent);
  return at == peers_.end() ? 0 : control::seconds_since(at->second.heard);
}

void AgentLink::excuse(double seconds) {
  for (auto& [agent, peer] : peers_)
    peer.heard = std::min(
        Clock::now(), peer.heard + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace lockstep
