// Who may see the page.
#include "dashboard/access.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::tests {
namespace {

constexpr const char* kToken = "a-token-of-twenty-six-letters";

TEST(Access, TakesNumericAndAllowedHostsOnly) {
  const Access access("", {"trainer.example"});
  for (const char* host : {"127.0.0.1", "127.0.0.1:8421", "localhost", "LOCALHOST:80", "[::1]", "[::1]:8421",
                           "10.1.2.3:9", "trainer.example", "Trainer.Example:8421"})
    EXPECT_TRUE(access.allows_host(host)) << host;
  for (const char* host : {"", "evil.example", "evil.example:8421", "127.0.0.1.evil.example", "localhost.evil.example",
                           "127.0.0.1:80@evil.example", "[::1", "[evil.example]", "[::1]evil.example", "[::1]:8x",
                           "1.2.3", "trainer.example.", "trainer.example:123456", "2130706433", "localhost:-1"})
    EXPECT_FALSE(access.allows_host(host)) << host;
  EXPECT_FALSE(access.allows_host(std::string(100'000, '1')));
}

TEST(Access, WithoutATokenEverybodyMayRead) { EXPECT_TRUE(Access("", {}).allows({.method = "GET", .path = "/"})); }

TEST(Access, TakesTheTokenAsABearerAlone) {
  const Access access(kToken, {});
  const auto with = [&](const std::string& header) {
    return access.allows({.method = "GET", .path = "/", .authorization = header});
  };
  EXPECT_TRUE(with(std::string("Bearer ") + kToken));
  for (const std::string& wrong : std::vector<std::string>{
           "", kToken, "Bearer ", "Bearer", std::string("Basic ") + kToken, std::string("Bearer ") + kToken + "x",
           "Bearer a-token", std::string("Bearer  ") + kToken})
    EXPECT_FALSE(with(wrong)) << wrong;
  EXPECT_FALSE(access.allows({.method = "GET", .path = "/", .query = {{"token", kToken}}})) << "from the address line";
  EXPECT_FALSE(access.allows({.method = "GET", .path = "/", .cookie = std::string("lockstep=") + kToken}));
}

TEST(Access, LoginGivesACookieThatIsNotTheToken) {
  const Access access(kToken, {});
  EXPECT_EQ(access.login("a-token-of-twenty-six-letterz"), "");
  EXPECT_EQ(access.login(""), "");
  EXPECT_EQ(Access("", {}).login(""), "");
  const std::string cookie = access.login(kToken);
  EXPECT_NE(cookie.find("; HttpOnly"), cookie.npos);
  EXPECT_NE(cookie.find("; SameSite=Strict"), cookie.npos);
  EXPECT_EQ(cookie.find(kToken), cookie.npos);
  const std::string pair = cookie.substr(0, cookie.find(';'));
  const auto with = [&](const std::string& header) {
    return access.allows({.method = "GET", .path = "/", .cookie = header});
  };
  EXPECT_TRUE(with(pair));
  EXPECT_TRUE(with("other=1; " + pair + "; more=2"));
  EXPECT_FALSE(with(pair + "0"));
  EXPECT_FALSE(with(pair.substr(0, pair.size() - 1)));
  EXPECT_FALSE(with(pair.substr(0, pair.find('=') + 1)));
  EXPECT_FALSE(with("lockstep_00000000" + pair.substr(pair.find('=')))) << "of a dashboard at another port";
  EXPECT_FALSE(Access(kToken, {}).allows({.method = "GET", .path = "/", .cookie = pair})) << "of another process";
}

TEST(Access, TokensAreLongRandomAndPrintable) {
  EXPECT_EQ(make_token().size(), 40u);
  EXPECT_NE(make_token(), make_token());
  EXPECT_NO_THROW(check_token(make_token(), "a file"));
  for (const char* wrong : {"", "short", "a token with its spaces", "line\nline-line-line-line"})
    EXPECT_THROW(check_token(wrong, "a file"), UserError) << wrong;
}

TEST(Access, ComparesWhole) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const auto& [a, b] :
       {std::pair("abc", "abd"), {"abc", "ab"}, {"ab", "abc"}, {"", "a"}, {"a", ""}, {"aa", "a"}, {"xbc", "abc"}})
    EXPECT_FALSE(equal_in_constant_time(a, b)) << a << " " << b;
}

TEST(Access, KnowsLoopbackAddresses) {
  for (const char* address : {"127.0.0.1", "127.8.8.8", "::1"}) EXPECT_TRUE(is_loopback(address)) << address;
  for (const char* address : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1"}) EXPECT_FALSE(is_loopback(address)) << address;
  for (const char* wrong : {"", "localhost", "127.0.0.1:80", "evil.example"})
    EXPECT_THROW(is_loopback(wrong), UserError) << wrong;
}

}  // namespace
}  // namespace lockstep::tests
