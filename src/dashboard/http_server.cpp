#include "dashboard/http_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "dashboard/bounded_stream.h"
#include "dashboard/http_address.h"

namespace lockstep {

namespace {

// cpp-httplib without its sockets.
class RequestReader : public httplib::Server {
 public:
  explicit RequestReader(HttpServer::Handler handler) : handler_(std::move(handler)) {
    set_payload_max_length(HttpServer::kMostFormBytes);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const bool form = request.method == "POST";
      if (form && reads_form(request)) return HandlerResponse::Unhandled;  // its body comes next
      if (form || (request.method != "GET" && request.method != "HEAD")) {
        write({.status = 405, .body = "this server only reads\n"}, response);
      } else {
        write(handler_(request_of(request)), response);
      }
      return HandlerResponse::Handled;
    });
    Post("/login", [this](const httplib::Request& request, httplib::Response& response) {
      HttpRequest own = request_of(request);
      std::swap(own.form, own.query);  // httplib mixes them, so a form is refused where there is a query
      write(handler_(own), response);
    });
  }

  // Whether another request may follow on the connection.
  bool serve(BoundedStream& stream) {
    bool closed = false, plain = false;
    const bool whole = process_request(stream, false, closed, [&plain](httplib::Request& request) {
      request.ranges.clear();  // a thousand overlapping ones of a long answer would be a longer one
      request.headers.erase("Range");
      plain = request.method == "GET" && !request.has_header("Content-Length") &&
              !request.has_header("Transfer-Encoding") && !request.has_header("Expect");
    });
    return whole && plain && !closed;
  }

 private:
  static bool reads_form(const httplib::Request& request) {
    return request.path == "/login" && request.target.find('?') == std::string::npos &&
           request.get_header_value("Content-Type").starts_with("application/x-www-form-urlencoded") &&
           !request.has_header("Transfer-Encoding") && !request.has_header("Content-Encoding") &&
           request.get_header_value_count("Content-Length") == 1;
  }

  static HttpRequest request_of(const httplib::Request& request) {
    HttpRequest own{.method = request.method, .path = request.path};
    for (const auto& [name, value] : request.params) own.query.emplace(name, value);
    // Of a header that comes twice nobody can say which one counts.
    const auto once = [&](const char* name) {
      return request.get_header_value_count(name) == 1 ? request.get_header_value(name) : std::string();
    };
    own.host = once("Host");
    own.authorization = once("Authorization");
    own.cookie = once("Cookie");
    own.origin = once("Origin");
    return own;
  }

  static void write(HttpAnswer answer, httplib::Response& response) {
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) response.set_header(name, value);
    response.body = std::move(answer.body);
    response.set_header("Content-Type", answer.type);
  }

  HttpServer::Handler handler_;
};

void send_busy(int socket) {
  static constexpr std::string_view kBusy =
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  [[maybe_unused]] const ssize_t sent = send(socket, kBusy.data(), kBusy.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

int listen_on(const HttpServerOptions& options) {
  if (options.port < 0 || options.port > 65535)
    throw UserError(ExitCode::usage, fmt::format("there is no port {}", options.port), "give one from 0 to 65535");
  const AddressInfo info = numeric_address(options.address, options.port);
  if (!info) is_loopback(options.address);  // which says so
  const int socket = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (socket >= 0) setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (socket >= 0 && bind(socket, info->ai_addr, info->ai_addrlen) == 0 &&
      listen(socket, static_cast<int>(HttpServer::kMostWaiting)) == 0)
    return socket;
  const int reason = errno;
  if (socket >= 0) close(socket);
  throw EnvironmentError(fmt::format(
      "cannot listen on {} port {}: {}; give {}", options.address, options.port, std::strerror(reason),
      reason == EADDRNOTAVAIL ? "an --address of this machine" : "another --port, or 0 for any that is free"));
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

struct HttpServer::State {
  State(const HttpServerOptions& options, Handler handler)
      : reader(std::move(handler)),
        listener(listen_on(options)),
        port(port_of(listener)),
        wake(eventfd(0, EFD_CLOEXEC)) {
    for (int i = 0; i < kWorkers; ++i) threads.emplace_back([this] { work(); });
    threads.emplace_back([this] { accept_all(); });
  }
  ~State() {
    stopping = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = write(wake, &one, sizeof(one));
    {
      const std::lock_guard lock(mutex);
      for (const int socket : serving) shutdown(socket, SHUT_RDWR);
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
    for (const int socket : waiting) close(socket);
    close(listener);
    close(wake);
  }

  void accept_all() {
    while (!stopping) {
      pollfd events[] = {{.fd = listener, .events = POLLIN, .revents = 0},
                         {.fd = wake, .events = POLLIN, .revents = 0}};
      if (poll(events, 2, -1) < 0 && errno != EINTR) return;
      if (stopping) return;
      const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket < 0) {  // the client is gone, or this process has too many files open: neither ends the server
        if (errno != EAGAIN && errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      std::unique_lock lock(mutex);
      if (waiting.size() >= kMostWaiting) {
        lock.unlock();
        send_busy(socket);
        close(socket);
        continue;
      }
      waiting.push_back(socket);
      lock.unlock();
      changed.notify_one();
    }
  }

  void work() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return stopping || !waiting.empty(); });
      if (stopping) return;
      const int socket = waiting.front();
      waiting.pop_front();
      serving.push_back(socket);
      lock.unlock();
      serve(socket);
      lock.lock();
      serving.erase(std::ranges::find(serving, socket));
      lock.unlock();
      close(socket);
    }
  }

  void serve(int socket) {
    BoundedStream stream(socket);
    const auto others_wait = [this] {
      const std::lock_guard lock(mutex);
      return stopping || !waiting.empty();
    };
    using Clock = std::chrono::steady_clock;
    Clock::time_point silent_until = Clock::now() + kSilent;  // from then on another connection may have its worker
    while (stream.begin_request(kKeptAlive, [&] { return Clock::now() >= silent_until && others_wait(); })) {
      if (!reader.serve(stream) || stopping) break;
      silent_until = Clock::now();
    }
    if (!stopping) stream.linger();
  }

  RequestReader reader;
  int listener, port, wake;
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<int> waiting;
  std::vector<int> serving;
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(const HttpServerOptions& options, Handler handler)
    : state_(std::make_unique<State>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return state_->port; }

}  // namespace lockstep
