// No client can harm the server: requests that are too large, too slow, too many or malformed are refused, and the next
// one is served.
#include "dashboard/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/error.h"
#include "dashboard/page_files.h"
#include "dashboard/raw_client.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!missing_packages().empty()) GTEST_SKIP() << "this build has no web server";
    server_ = std::make_unique<HttpServer>(HttpServerOptions{}, [this](const HttpRequest& request) {
      ++served_;
      last_ = request.method + " " + request.path;
      if (request.path == "/long") return HttpAnswer{.body = std::string(10'000'000, 'x')};
      std::string text = request.path;
      for (const auto& [name, value] : request.query) text += "|" + name + "=" + value;
      for (const auto& [name, value] : request.form) text += "|form " + name + "=" + value;
      return HttpAnswer{.body = text + "|host " + request.host};
    });
  }
  int port() const { return server_->port(); }
  void expect_alive() { EXPECT_EQ(status_of(raw_get(port(), "/alive")), 200); }

  std::atomic<int> served_{0};
  std::string last_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  RawClient client(port());
  for (int i = 0; i < 3; ++i) client.send("GET /a?b=c%20d&e=1 HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string all = client.rest(std::chrono::milliseconds(500));
  EXPECT_FALSE(client.closed());
  std::size_t count = 0;
  for (std::size_t at = 0; (at = all.find("/a|b=c d|e=1|host h", at)) != all.npos; ++at) ++count;
  EXPECT_EQ(count, 3u) << all;
}

TEST_F(HttpServerTest, RefusesWhatIsTooLong) {
  const std::string get = "GET /x HTTP/1.1\r\nHost: h\r\n";
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "A: b\r\n";
  for (const std::string& request :
       {"GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", std::string(1'000'000, 'G'),
        get + "Long: " + std::string(1'000'000, 'y') + "\r\n\r\n", get + many + "\r\n",
        std::string("GET /") + std::string(10'000'000, 'z')}) {
    const std::string answer = raw_answer(port(), request);
    EXPECT_TRUE(answer.empty() || (status_of(answer) >= 400 && status_of(answer) < 500)) << answer.substr(0, 100);
  }
  EXPECT_EQ(served_, 0);
  expect_alive();
}

TEST_F(HttpServerTest, TakesNoBodyButASmallForm) {
  const auto post = [&](const std::string& target, const std::string& headers, const std::string& body) {
    return raw_answer(port(), "POST " + target + " HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body);
  };
  const std::string form = "Content-Type: application/x-www-form-urlencoded\r\n";
  EXPECT_THAT(post("/login", form + "Content-Length: 7\r\n", "token=x"), HasSubstr("/login|form token=x"));
  const int before = served_;
  EXPECT_EQ(status_of(post("/login?token=y", form + "Content-Length: 7\r\n", "token=x")), 405);
  EXPECT_EQ(status_of(post("/other", form + "Content-Length: 7\r\n", "token=x")), 405);
  EXPECT_EQ(status_of(post("/login", "Content-Type: text/plain\r\nContent-Length: 7\r\n", "token=x")), 405);
  EXPECT_EQ(status_of(post("/login", form + "Transfer-Encoding: chunked\r\n", "7\r\ntoken=x\r\n0\r\n\r\n")), 405);
  const std::string large = post("/login", form + "Content-Length: 1000000000\r\n", std::string(200'000, 'a'));
  EXPECT_TRUE(large.empty() || status_of(large) == 413 || status_of(large) == 400) << large.substr(0, 100);
  for (const char* method : {"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"})
    EXPECT_GE(
        status_of(raw_answer(port(), std::string(method) + " / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")), 400)
        << method;
  EXPECT_EQ(served_, before);
  expect_alive();
}

TEST_F(HttpServerTest, ABodyIsNoSecondRequest) {
  RawClient client(port());
  const std::string inner = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
  client.send("GET /outer HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(inner.size()) + "\r\n\r\n" + inner);
  const std::string all = client.rest();
  EXPECT_TRUE(client.closed());
  EXPECT_THAT(all, HasSubstr("/outer"));
  EXPECT_THAT(all, Not(HasSubstr("/smuggled")));
}

TEST_F(HttpServerTest, ManyRangesMakeNoLongAnswer) {
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 1000; ++i) ranges += ",0-";
  const std::string answer = raw_get(port(), "/long", ranges + "\r\n");
  EXPECT_LT(answer.size(), 10'100'000u);
}

TEST_F(HttpServerTest, NonsenseIsRefused) {
  for (const std::string& text :
       {std::string("\r\n\r\n"), std::string(1000, '\0'), std::string("GET\r\n\r\n"),
        std::string("GET / HTTP/9.9\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        std::string("GET / HTTP/1.1\r\nno colon\r\n\r\n")}) {
    RawClient client(port());
    client.send(text);
    client.rest(std::chrono::milliseconds(300));
  }
  expect_alive();
}

TEST_F(HttpServerTest, HeadersThatComeTwiceDoNotCount) {
  const std::string answer = raw_answer(port(), "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(body_of(answer).ends_with("|host ")) << answer;
}

TEST_F(HttpServerTest, ServesTwoHundredConnectionsAtOnce) {
  std::vector<std::unique_ptr<RawClient>> silent;  // half of them say nothing, or not all
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<RawClient>(port()));
    ASSERT_TRUE(silent.back()->connected());
    if (i % 2) silent.back()->send("GET /slow HTTP/1.1\r\nHost: h\r\n");
  }
  const Clock::time_point begin = Clock::now();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) threads.emplace_back([&] { good += status_of(raw_get(port(), "/one")) == 200; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 100);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(40));
  silent.clear();
  expect_alive();
}

TEST_F(HttpServerTest, AThousandConnectionsAreRefusedWithoutHarm) {
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 600; ++i) clients.push_back(std::make_unique<RawClient>(port()));
  int busy = 0;
  for (const auto& client : clients) busy += status_of(client->rest(std::chrono::milliseconds(1))) == 503;
  EXPECT_GE(busy, 200) << "more than can wait were not turned away";
  clients.clear();
  expect_alive();
}

TEST_F(HttpServerTest, ARequestThatDripsIsCutOff) {
  RawClient client(port());
  const Clock::time_point begin = Clock::now();
  client.send("GET /drip HTTP/1.1\r\n");
  while (Clock::now() - begin < std::chrono::seconds(20) && !client.closed()) {
    if (!client.send("A")) break;
    client.rest(std::chrono::milliseconds(200));
  }
  EXPECT_LT(Clock::now() - begin, HttpServer::kRequestDeadline + std::chrono::seconds(3));
  EXPECT_EQ(served_, 0);
}

TEST_F(HttpServerTest, EndsAtOnceWithConnectionsOpen) {
  RawClient idle(port()), half(port());
  half.send("GET / HTT");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const Clock::time_point begin = Clock::now();
  server_.reset();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(HttpServerTest, APortThatIsTakenIsTold) {
  try {
    HttpServer(HttpServerOptions{.port = port()}, [](const HttpRequest&) { return HttpAnswer{}; });
    FAIL() << "it listens twice";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--port"));
  }
}

}  // namespace
}  // namespace lockstep::tests
