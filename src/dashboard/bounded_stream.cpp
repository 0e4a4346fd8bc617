#include "dashboard/bounded_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "dashboard/http_server.h"

namespace lockstep {

bool BoundedStream::wait_for(short events, Clock::time_point deadline) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{.fd = socket_, .events = events, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool BoundedStream::begin_request(std::chrono::milliseconds patience, const std::function<bool()>& must_end) {
  bytes_ = lines_ = 0;
  constexpr std::chrono::milliseconds kLook{100};
  const Clock::time_point until = Clock::now() + patience;
  while (begin_ == end_ && !wait_for(POLLIN, std::min(until, Clock::now() + kLook)))
    if (Clock::now() >= until || must_end()) return false;
  request_deadline_ = Clock::now() + HttpServer::kRequestDeadline;
  answer_deadline_ = Clock::now() + HttpServer::kAnswerDeadline;
  return true;
}

bool BoundedStream::fill() {
  if (begin_ < end_) return true;
  for (;;) {
    const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got > 0) {
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
      return true;
    }
    const bool none_yet = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (!none_yet || !wait_for(POLLIN, request_deadline_)) return false;
  }
}

ssize_t BoundedStream::read(char* to, size_t size) {
  if (bytes_ >= HttpServer::kMostRequestBytes || lines_ > HttpServer::kMostRequestLines) return -1;
  if (!fill()) return -1;
  const std::size_t taken = std::min({size, end_ - begin_, HttpServer::kMostRequestBytes - bytes_});
  std::copy_n(buffer_.data() + begin_, taken, to);
  lines_ += static_cast<std::size_t>(std::count(to, to + taken, '\n'));
  bytes_ += taken;
  begin_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t BoundedStream::write(const char* from, size_t size) {
  for (;;) {
    const ssize_t sent = send(socket_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return -1;
    if (!wait_for(POLLOUT, answer_deadline_)) return -1;
  }
}

void BoundedStream::linger() {
  shutdown(socket_, SHUT_WR);
  std::size_t thrown = 0;
  const Clock::time_point until = Clock::now() + std::chrono::milliseconds(200);
  while (thrown < (std::size_t{1} << 20) && wait_for(POLLIN, until)) {
    const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    thrown += static_cast<std::size_t>(got);
  }
}

}  // namespace lockstep
