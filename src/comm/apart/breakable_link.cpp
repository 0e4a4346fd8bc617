#include "comm/apart/breakable_link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::apart {

namespace {

constexpr int kIdle = 2, kBetween = 1, kProbes = 4;  // seconds, seconds, and how many signs of life may be missing
constexpr unsigned kUntaken = 6000;                  // milliseconds

void set(const control::Socket& socket, int level, int name, unsigned value) {
  ::setsockopt(socket.descriptor(), level, name, &value, sizeof value);  // one that is refused costs time, no more
}

bool again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void end_when_host_is_gone(const control::Socket& socket) {
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdle);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kBetween);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

Link::Link(control::Socket socket, std::string peer, bool prompt) : socket_(std::move(socket)), peer_(std::move(peer)) {
  end_when_host_is_gone(socket_);
  if (prompt) set(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT, kUntaken);
}

Link::Started Link::send(const void* data, std::int64_t bytes) {
  auto transfer = std::make_shared<Transfer>(Transfer{.data = static_cast<char*>(const_cast<void*>(data)),
                                                      .bytes = static_cast<std::uint64_t>(bytes),
                                                      .length = static_cast<std::uint64_t>(bytes)});
  sends_.push_back(transfer);
  advance();
  return transfer;
}

Link::Started Link::receive(void* data, std::int64_t bytes) {
  auto transfer = std::make_shared<Transfer>(
      Transfer{.data = static_cast<char*>(data), .bytes = static_cast<std::uint64_t>(bytes)});
  receives_.push_back(transfer);
  advance();
  return transfer;
}

void Link::break_up(const std::string& why) {
  if (!broken()) why_ = why;
  socket_ = control::Socket();
  give_up_transfers();
}

void Link::give_up_transfers() {
  for (std::deque<Started>* all : {&sends_, &receives_}) {
    for (const Started& one : *all) one->done = true;
    all->clear();
  }
}

// Whether all of it has gone.
bool Link::send_some(Transfer& t) {
  while (t.length_moved < sizeof t.length || t.moved < t.bytes) {
    const bool header = t.length_moved < sizeof t.length;
    const char* const at = header ? reinterpret_cast<const char*>(&t.length) + t.length_moved : t.data + t.moved;
    const std::uint64_t left = header ? sizeof t.length - t.length_moved : t.bytes - t.moved;
    const int more = header && t.bytes > 0 ? MSG_MORE : 0;
    const ssize_t went = ::send(socket_.descriptor(), at, left, MSG_NOSIGNAL | MSG_DONTWAIT | more);
    if (went < 0 && again(errno)) return false;
    if (went < 0) {
      break_up(fmt::format("the connection to {} is broken: {}", peer_, std::strerror(errno)));
      return false;
    }
    (header ? t.length_moved : t.moved) += static_cast<std::uint64_t>(went);
    moved_ += static_cast<std::uint64_t>(went);
  }
  return true;
}

// Whether all of it has come.
bool Link::receive_some(Transfer& t) {
  while (t.length_moved < sizeof t.length || t.moved < t.bytes) {
    const bool header = t.length_moved < sizeof t.length;
    char* const at = header ? reinterpret_cast<char*>(&t.length) + t.length_moved : t.data + t.moved;
    const std::uint64_t left = header ? sizeof t.length - t.length_moved : t.bytes - t.moved;
    const ssize_t came = ::recv(socket_.descriptor(), at, left, MSG_DONTWAIT);
    if (came < 0 && again(errno)) return false;
    if (came <= 0) {
      break_up(came == 0 ? fmt::format("{} has closed its connection", peer_)
                         : fmt::format("the connection to {} is broken: {}", peer_, std::strerror(errno)));
      return false;
    }
    (header ? t.length_moved : t.moved) += static_cast<std::uint64_t>(came);
    moved_ += static_cast<std::uint64_t>(came);
    if (header && t.length_moved == sizeof t.length && t.length != t.bytes) {
      break_up(fmt::format("{} sends {} bytes where {} are expected", peer_, t.length, t.bytes));
      return false;
    }
  }
  return true;
}

// Of who is not received from, too.
void Link::look_for_end() {
  char byte;
  const ssize_t came = ::recv(socket_.descriptor(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  if (came == 0) break_up(fmt::format("{} has closed its connection", peer_));
  if (came < 0 && !again(errno))
    break_up(fmt::format("the connection to {} is broken: {}", peer_, std::strerror(errno)));
}

void Link::advance() {
  while (!broken() && !sends_.empty() && send_some(*sends_.front())) {
    sends_.front()->done = sends_.front()->whole = true;
    sends_.pop_front();
  }
  while (!broken() && !receives_.empty() && receive_some(*receives_.front())) {
    receives_.front()->done = receives_.front()->whole = true;
    receives_.pop_front();
  }
  if (!broken() && receives_.empty()) look_for_end();
  if (broken()) give_up_transfers();
}

void Link::wait(const Started& transfer, double seconds) {
  constexpr int kLook = 100;  // milliseconds
  std::uint64_t moved = moved_;
  auto since = control::Clock::now();
  for (advance(); !transfer->done && !broken(); advance()) {
    if (moved_ != moved) {
      moved = moved_;
      since = control::Clock::now();
    } else if (seconds > 0 && control::seconds_since(since) > seconds) {
      return break_up(fmt::format("{} has neither sent nor taken anything for {:.0f} s", peer_, seconds));
    }
    pollfd polled{socket_.descriptor(), POLLIN, 0};
    if (receives_.empty()) polled.events = 0;  // what has come already is not for now
    if (!sends_.empty()) polled.events |= POLLOUT;
    ::poll(&polled, 1, kLook);
  }
}

}  // namespace lockstep::apart
