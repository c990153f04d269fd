import asyncio

from rmqnet.remoting.frame_codec import FrameDecoder, encode_frame
from rmqnet.remoting.headers import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader
from rmqnet.remoting.remoting_client import RemotingClient
from rmqnet.remoting.remoting_command import RemotingCommand


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.decoder = FrameDecoder("client")

    def data_received(self, data):
        for command in self.decoder.feed(data):
            answer = RemotingCommand.response_to(command, 0, header=GetMinOffsetResponseHeader(7))
            self.transport.write(encode_frame(answer))


def test_a_request_is_answered():
    async def run():
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = RemotingClient()
        request = RemotingCommand.request(GetMinOffsetRequestHeader("t", 0))
        response = await client.invoke(f"127.0.0.1:{port}", request, 3)
        await client.close()
        server.close()
        return response

    assert asyncio.run(run()).ext_fields == {"offset": "7"}
