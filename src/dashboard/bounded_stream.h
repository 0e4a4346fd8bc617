// One connection as cpp-httplib reads and writes it, with an end to its patience.
//
// A request begins with the first byte that follows begin_request(); reading fails after the request's share of bytes,
// lines or time, writing after the answer's share of time. The socket does not block.
#pragma once
#include <httplib.h>

#include <array>
#include <atomic>
#include <chrono>

namespace lockstep {

class BoundedStream : public httplib::Stream {
 public:
  explicit BoundedStream(int socket) : socket_(socket) {}

  // True when a request begins, within `patience` and while nothing says that the connection must end.
  bool begin_request(std::chrono::milliseconds patience, const std::function<bool()>& must_end);

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

  // The client is told that nothing follows, and what it still sends is thrown away for a moment: a close with bytes
  // unread would destroy the answer on its way.
  void linger();

 private:
  using Clock = std::chrono::steady_clock;
  bool wait_for(short events, Clock::time_point deadline) const;
  bool fill();  // at least one byte is in the buffer

  int socket_;
  std::array<char, 4096> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::size_t bytes_ = 0, lines_ = 0;  // of this request
  Clock::time_point request_deadline_{}, answer_deadline_{};
};

}  // namespace lockstep
