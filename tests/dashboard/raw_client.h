// A client that sends what it is told, byte for byte.
#pragma once
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

namespace lockstep::tests {

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // All that comes until the server closes, or `quiet` passes without a byte.
  std::string rest(std::chrono::milliseconds quiet = std::chrono::seconds(20)) {
    std::string all;
    for (;;) {
      pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, static_cast<int>(quiet.count())) <= 0) return all;
      char buffer[65536];
      const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
      if (got <= 0) {
        closed_ = true;
        return all;
      }
      all.append(buffer, static_cast<std::size_t>(got));
    }
  }
  bool closed() const { return closed_; }  // the server has, as rest() saw

 private:
  int socket_;
  bool connected_ = false, closed_ = false;
};

// One request on a connection of its own; the whole answer, or "" where none came.
inline std::string raw_answer(int port, const std::string& request) {
  RawClient client(port);
  client.send(request);
  return client.rest();
}
inline std::string raw_get(int port, const std::string& target, const std::string& headers = "") {
  return raw_answer(port, "GET " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + headers + "\r\n");
}
inline int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}
inline std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == answer.npos ? "" : answer.substr(end + 4);
}

}  // namespace lockstep::tests
