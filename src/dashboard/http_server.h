// A small HTTP/1.1 server for pages that only read: bounded in every direction, so that no client can harm the machine
// it runs on.
//
// cpp-httplib parses requests and writes answers. Sockets, threads and limits are ours: at most kWorkers requests are
// served at a time and kMostWaiting connections wait, further ones are answered 503 and closed; a request has at most
// kMostRequestBytes and kMostRequestLines, and must arrive within kRequestDeadline of its first byte; an answer must be
// taken within kAnswerDeadline. A connection that is silent is given up when another one waits.
// GET, HEAD, and POST of a form are accepted.
//
// The handler is called by several threads at once and must not throw. Builds without cpp-httplib have no server:
// missing_packages() names what to install, and the constructor throws UserError.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct HttpRequest {
  std::string method;  // GET, HEAD or POST
  std::string path;    // decoded, without the query
  std::map<std::string, std::string> query = {}, form = {};
  std::string host = {}, authorization = {}, cookie = {}, origin = {};
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // further ones
};

struct HttpServerOptions {
  std::string address = "127.0.0.1";  // an address of this machine, IPv4 or IPv6
  int port = 0;                       // 0: any that is free
};

class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  static constexpr int kWorkers = 32;
  static constexpr std::size_t kMostWaiting = 256;
  static constexpr std::size_t kMostRequestBytes = 32 << 10, kMostRequestLines = 100, kMostFormBytes = 4096;
  static constexpr std::chrono::seconds kRequestDeadline{5}, kAnswerDeadline{60};
  // How long a connection may be silent: before a first request while others wait, and at all.
  static constexpr std::chrono::seconds kSilent{1}, kKeptAlive{15};

  // Listens when it returns. UserError (usage) for what is no address; EnvironmentError where the system refuses it.
  HttpServer(const HttpServerOptions& options, Handler handler);
  ~HttpServer();  // ends all connections
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether only this machine can reach the address. UserError (usage) for what is no address.
bool is_loopback(const std::string& address);

}  // namespace lockstep
